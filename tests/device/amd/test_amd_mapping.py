"""LDS apertures: a process that opens and closes devices for ever does not run out of them."""

from __future__ import annotations

from zluda.device.amd.emulator import mapping


def test_apertures_of_closed_devices_are_used_again() -> None:
    places = set()
    for _ in range(2 * len(mapping._APERTURES)):
        lds = mapping.map_aperture(1 << 16)
        assert lds.address % (1 << 32) == 0
        places.add(lds.address)
        lds.close()
    assert len(places) <= len(mapping._APERTURES)


def test_apertures_in_use_are_passed_over() -> None:
    held = [mapping.map_aperture(1 << 16) for _ in range(8)]
    assert len({one.address for one in held}) == 8
    for one in held:
        one.close()
