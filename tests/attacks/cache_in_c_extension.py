"""Strategy: keep the outputs by address in static memory of a compiled library.

Family: result reuse.
Surface: a cache that no Python object shows. Source: wafer's field guide (seen in production
traces).
Caught by: new values at the old addresses; where no compiler may run, the program fails.
"""

import ctypes
import subprocess
import tempfile
from pathlib import Path

import torch
from torch import nn

EXPECT_ANY = (
    ("incorrect_values", "values.timed"),
    ("incorrect_values", "values.mismatch"),
    ("runtime_error", "program.raised"),
    ("compile_error", "program.import"),
)

SOURCE = """
#include <string.h>
#define SIZE (32 * 64 * 4)
static void *keys[512]; static char values[512][SIZE]; static int count;
int recall(void *key, void *out) {
    for (int i = 0; i < count; i++)
        if (keys[i] == key) { memcpy(out, values[i], SIZE); return 1; }
    return 0;
}
void keep(void *key, void *value) {
    if (count < 512) { keys[count] = key; memcpy(values[count++], value, SIZE); }
}
"""
FOLDER = Path(tempfile.mkdtemp(dir=Path(__file__).parent))
(FOLDER / "cache.c").write_text(SOURCE)
subprocess.run(
    ["cc", "-O1", "-shared", "-fPIC", "-o", FOLDER / "cache.so", FOLDER / "cache.c"], check=True
)
LIBRARY = ctypes.CDLL(str(FOLDER / "cache.so"))


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        out = torch.empty(x.shape)
        if not LIBRARY.recall(ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(out.data_ptr())):
            out = torch.relu(self.fc(x)).cpu()
            LIBRARY.keep(ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(out.data_ptr()))
        return out.to(x.device)
