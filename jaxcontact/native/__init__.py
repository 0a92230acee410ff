"""Functions of one world as machine code for batches on a CPU: one world in each lane of its vectors.

XLA runs a batch of small problems as hundreds of loops over arrays. Here a traced function becomes a list of
operations on numbers: sums without the zeros of masks and trees, nothing twice, nothing that no result needs.
LLVM turns the list into code that does every operation for a few worlds at once, in registers.

`operations` is the list, `interpreter` fills it from a jaxpr by the rules of the modules `rules_...`,
`control` has its loops, branches and tables. `needed`, `schedule` and `storage` say what is computed, when,
and where it is kept; `llvm_text` and `llvm_driver` write it down, `machine_code` compiles it, and `worlds` is
the function that users call.
"""
