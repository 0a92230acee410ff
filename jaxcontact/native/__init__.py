"""Functions of one world as machine code for batches on a CPU: one world in each lane of its vectors.

`jaxprs` reads a traced function; `interpreter` makes of it, by the rules of the modules named rules, a list
of `operations` on numbers, with loops, branches and tables (`control`). `needed`, `schedule` and `storage`
say what is computed, when, and where it is kept; `llvm_text` and `llvm_driver` write it down; `machine_code`
compiles it. Users call `batching.simd`. The page is docs/understand/performance.md.
"""
