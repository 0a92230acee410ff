"""Fixtures of the tests of `jc.simd`."""

import pytest

import jaxcontact as jc


@pytest.fixture
def program_sizes(monkeypatch):
    """Numbers of operations of the programs that a test compiles."""
    sizes = []
    compiled = jc.batching.simd.MachineCode.__init__

    def watched(self, ops, *arguments):
        compiled(self, ops, *arguments)
        sizes.append(self.num_operations)

    monkeypatch.setattr(jc.batching.simd.MachineCode, "__init__", watched)
    return sizes
