"""PTX of OpenMM, which makes it at run time: python from_openmm.py (with driver.c as libcuda.so.1)."""

import random
import sys

import openmm as mm

N = 60


def particles(force, *values):
    for _ in range(N):
        force.addParticle(*values)
    return force


def nonbonded(method):
    force = mm.NonbondedForce()
    for i in range(N):
        force.addParticle((-1) ** i * 0.1, 0.3, 0.2)
    force.setNonbondedMethod(method)
    force.setCutoffDistance(1.0)
    return force


def bonded():
    bonds, angles, torsions = mm.HarmonicBondForce(), mm.HarmonicAngleForce(), mm.PeriodicTorsionForce()
    bonds.addBond(0, 1, 0.1, 100)
    angles.addAngle(0, 1, 2, 1.5, 10)
    torsions.addTorsion(0, 1, 2, 3, 2, 0.5, 3)
    ryckaert = mm.RBTorsionForce()
    ryckaert.addTorsion(0, 1, 2, 3, 1, 2, 3, 4, 5, 6)
    return [bonds, angles, torsions, ryckaert]


def custom():
    pair = mm.CustomNonbondedForce("a*exp(-r)/r^2 + step(r-0.5)*sin(r); a=a1*a2")
    pair.addPerParticleParameter("a")
    bond = mm.CustomBondForce("k*(r-r0)^4")
    bond.addPerBondParameter("k")
    bond.addPerBondParameter("r0")
    bond.addBond(0, 1, [1.0, 2.0])
    external = mm.CustomExternalForce("x^2+y^2*cos(z)")
    external.addParticle(0)
    hydrogen = mm.CustomCompoundBondForce(3, "distance(p1,p2)*angle(p1,p2,p3)")
    hydrogen.addBond([0, 1, 2])
    return [particles(pair, [1.0]), bond, external, hydrogen]


def born():
    force = mm.GBSAOBCForce()
    for i in range(N):
        force.addParticle((-1) ** i * 0.1, 0.15, 0.8)
    return force


SYSTEMS = {
    "plain": lambda: [nonbonded(mm.NonbondedForce.NoCutoff), *bonded()],
    "cutoff": lambda: [nonbonded(mm.NonbondedForce.CutoffPeriodic), mm.MonteCarloBarostat(1, 300, 5)],
    "ewald": lambda: [nonbonded(mm.NonbondedForce.Ewald), mm.CMMotionRemover()],
    "custom": custom,
    "born": lambda: [nonbonded(mm.NonbondedForce.NoCutoff), born()],
    "andersen": lambda: [nonbonded(mm.NonbondedForce.CutoffNonPeriodic), mm.AndersenThermostat(300, 1)],
}
INTEGRATORS = {
    "plain": lambda: mm.VerletIntegrator(0.001),
    "cutoff": lambda: mm.LangevinMiddleIntegrator(300, 1, 0.001),
    "ewald": lambda: mm.BrownianIntegrator(300, 1, 0.001),
    "custom": lambda: mm.VariableLangevinIntegrator(300, 1, 0.001),
    "born": lambda: mm.NoseHooverIntegrator(300, 1, 0.001),
    "andersen": lambda: mm.VariableVerletIntegrator(0.001),
}


def main() -> None:
    """Make a context of every system in every precision: OpenMM compiles its kernels then."""
    for name, forces in SYSTEMS.items():
        for precision in ("mixed", "double"):
            system = mm.System()
            for _ in range(N):
                system.addParticle(12.0)
            system.setDefaultPeriodicBoxVectors([3, 0, 0], [0, 3, 0], [0, 0, 3])
            system.addConstraint(4, 5, 0.1)
            for force in forces():
                system.addForce(force)
            platform = mm.Platform.getPlatformByName("CUDA")
            try:
                context = mm.Context(system, INTEGRATORS[name](), platform, {"Precision": precision})
                context.setPositions([[3 * random.random() for _ in range(3)] for _ in range(N)])
                context.getState(getEnergy=True, getForces=True)
                context.getIntegrator().step(1)
            except mm.OpenMMException as error:  # the stand-in computes nothing: energies may be refused
                print(f"openmm: {name}, {precision}: {error}"[:200], file=sys.stderr)


if __name__ == "__main__":
    main()
