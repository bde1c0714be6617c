"""What a buffer's elements are, read off the PTX that loads and stores them (D7).

``program`` lists what a kernel and all it calls execute; ``addresses`` says where each access goes: which
parameter's pointer or variable, which step and which rest (``places``); ``flow`` follows values through
moves, halves and calls to the instructions that give them a type (``tags``); ``votes`` brings both together,
and what passes through shared memory; ``layout`` decides what the votes of one pointer come to, and how sure
that is; ``signature`` and ``override`` are other sources; ``launches`` places the outcome in the allocations
of a launch, part by part (``regions``). May import ``ptx``, ``compiler`` and ``tracefile``.
"""
