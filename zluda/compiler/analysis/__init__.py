"""What is known of a PTX function before code is made: its graph, an order of execution, liveness, shapes.

Reads typed PTX only; knows nothing of LLVM or of a target beyond the warp's geometry.
"""
