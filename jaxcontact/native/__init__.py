"""Machine code for functions of one world, run on batches on a CPU: one world in each lane of its vectors.

`jaxprs` reads a traced function; `interpreter` and the modules named rules make of it a list of `operations`
on numbers, with loops, branches and tables (`control`). `needed`, `schedule` and `storage` select, order and
place the operations; `llvm_text` and `llvm_driver` write them as text; `machine_code` compiles it. The entry
is `batching.simd`. The page is docs/understand/performance.md.
"""
