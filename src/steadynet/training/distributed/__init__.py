"""Train in several processes that ``torchrun`` starts, with the same result as in one process.

``torchrun_env`` says which process this is, ``process_group`` holds what the processes do together, and
``global_batch`` makes one process's slice of a batch behave like the whole batch.
"""
