"""What GPUs have in common: a thread is a lane of the machine, and a register one scalar of LLVM's.

Owns such a thread and the address spaces it sees (``thread.py``), its addresses, loads and stores
(``memory.py``), calls (``calls.py``), and the passes that LLVM runs (``llvm.py``). A target (``amd/``,
``nvptx/``) adds what is its own machine's.
"""
