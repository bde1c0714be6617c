"""Modules, libraries, kernels and functions."""

from __future__ import annotations

from collections.abc import Callable

from zluda.replay.handlers.table import bind, device, handles, signed
from zluda.replay.playback import Playback
from zluda.tracefile import Call

_MODULE = ("module", "module")
_LIBRARY = ("library", "library")
_MODULE_OF_LIBRARY = ("module", "pMod")
_FUNCTION = ("function", "hfunc")
_KERNEL = ("function", "pKernel")
_FUNCTION_OF_KERNEL = ("function", "pFunc")


@handles("cuModuleLoad", "cuModuleLoadData", "cuModuleLoadDataEx", "cuModuleLoadFatBinary", creates=_MODULE)
def module_load(state: Playback, call: Call) -> None:
    bind(state, call, _MODULE, state.load_module(call, "module"))


@handles("cuLibraryLoadData", "cuLibraryLoadFromFile", creates=_LIBRARY)
def library_load(state: Playback, call: Call) -> None:
    bind(state, call, _LIBRARY, state.load_module(call, "library"))


@handles("cuLinkCreate", "cuLinkAddData", "cuLinkAddFile", "cuLinkComplete", "cuLinkDestroy")
def link(state: Playback, call: Call) -> None:
    """Nothing to issue: what came of it is in the record of the module that was loaded from it."""


@handles("cuModuleUnload")
def module_unload(state: Playback, call: Call) -> None:
    _unload(state, call, "module", call.arguments["hmod"], state.driver.cuModuleUnload)


@handles("cuLibraryUnload")
def library_unload(state: Playback, call: Call) -> None:
    _unload(state, call, "library", call.arguments["library"], state.driver.cuLibraryUnload)


def _unload(state: Playback, call: Call, kind: str, recorded: int, unload: Callable[[int], None]) -> None:
    live = state.handles.get(kind, recorded)
    state.handles.release(kind, recorded)
    state.unload_module(call)
    if isinstance(live, int):  # one that did not load here needs no unloading
        unload(live)


@handles("cuModuleGetFunction", creates=_FUNCTION)
def module_get_function(state: Playback, call: Call) -> None:
    module = state.handles.live("module", call.arguments["hmod"])
    bind(state, call, _FUNCTION, state.driver.cuModuleGetFunction(module, state.function_name(call)))


@handles("cuLibraryGetKernel", creates=_KERNEL)
def library_get_kernel(state: Playback, call: Call) -> None:
    library = state.handles.live("library", call.arguments["library"])
    bind(state, call, _KERNEL, state.driver.cuLibraryGetKernel(library, state.function_name(call)))


@handles("cuKernelGetFunction", creates=_FUNCTION_OF_KERNEL)
def kernel_get_function(state: Playback, call: Call) -> None:
    kernel = state.handles.live("function", call.arguments["kernel"])
    bind(state, call, _FUNCTION_OF_KERNEL, state.driver.cuKernelGetFunction(kernel))


@handles("cuLibraryGetModule", creates=_MODULE_OF_LIBRARY)
def library_get_module(state: Playback, call: Call) -> None:
    library = state.handles.live("library", call.arguments["library"])
    bind(state, call, _MODULE_OF_LIBRARY, state.driver.cuLibraryGetModule(library))


@handles("cuModuleGetGlobal")
def module_get_global(state: Playback, call: Call) -> None:
    module = state.handles.live("module", call.arguments["hmod"])
    state.driver.cuModuleGetGlobal(module, state.string(call, "name"))


@handles("cuLibraryGetGlobal")
def library_get_global(state: Playback, call: Call) -> None:
    library = state.handles.live("library", call.arguments["library"])
    state.driver.cuLibraryGetGlobal(library, state.string(call, "name"))


@handles("cuFuncSetAttribute", spoils=_FUNCTION)
def function_set_attribute(state: Playback, call: Call) -> None:
    function = state.handles.live("function", call.arguments["hfunc"])
    state.driver.cuFuncSetAttribute(function, call.arguments["attrib"], signed(call.arguments["value"]))


@handles("cuKernelSetAttribute", spoils=("function", "kernel"))
def kernel_set_attribute(state: Playback, call: Call) -> None:
    kernel = state.handles.live("function", call.arguments["kernel"])
    value = signed(call.arguments["val"])
    state.driver.cuKernelSetAttribute(call.arguments["attrib"], value, kernel, device(call))


@handles("cuFuncSetCacheConfig")
def function_set_cache_config(state: Playback, call: Call) -> None:
    function = state.handles.live("function", call.arguments["hfunc"])
    state.driver.cuFuncSetCacheConfig(function, call.arguments["config"])


@handles("cuKernelSetCacheConfig")
def kernel_set_cache_config(state: Playback, call: Call) -> None:
    kernel = state.handles.live("function", call.arguments["kernel"])
    state.driver.cuKernelSetCacheConfig(kernel, call.arguments["config"], device(call))


@handles("cuFuncLoad")
def function_load(state: Playback, call: Call) -> None:
    """A replay loads a function at its first launch, where a failure is that launch's verdict."""
    state.handles.live("function", call.arguments["function"])
