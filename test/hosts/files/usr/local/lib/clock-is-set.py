"""Clears the kernel's mark "not synchronised" (adjtimex, ADJ_STATUS | ADJ_MAXERROR | ADJ_ESTERROR)."""

import ctypes
import struct

ADJ_MAXERROR, ADJ_ESTERROR, ADJ_STATUS, STA_PLL = 0x4, 0x8, 0x10, 0x1
# struct timex: modes, offset, freq, maxerror, esterror, status, and the rest of its 208 bytes.
timex = struct.pack("@i4xqqqqi4x", ADJ_STATUS | ADJ_MAXERROR | ADJ_ESTERROR, 0, 0, 0, 0, STA_PLL)
buffer = ctypes.create_string_buffer(timex.ljust(208, b"\0"), 208)
if ctypes.CDLL(None, use_errno=True).adjtimex(buffer) < 0:
    raise OSError(ctypes.get_errno(), "adjtimex")
