"""Sends one request to a kernel and prints its answer as it comes, one JSON object per line.

    ask.py SOCKET SECONDS REQUEST...

SECONDS is how long to wait for a kernel that is just being started. REQUEST is JSON, in pieces that each fit into one
argument. Killing this program cancels the request: the kernel sees the connection end, and interrupts the code.
"""

import os
import socket
import sys
import time


def connect(path, seconds):
    deadline = time.monotonic() + seconds
    while True:
        kernel = socket.socket(socket.AF_UNIX)
        try:
            kernel.connect(path)
            return kernel
        except (FileNotFoundError, ConnectionRefusedError):
            kernel.close()
            if time.monotonic() >= deadline:
                return None
            time.sleep(0.02)


def main(path, seconds, *pieces):
    kernel = connect(path, float(seconds))
    if kernel is None:
        print('{"event": "absent"}')
        return
    try:
        kernel.sendall("".join(pieces).encode() + b"\n")
        while chunk := kernel.recv(65536):
            while chunk:
                chunk = chunk[os.write(1, chunk):]
    except ConnectionError:
        pass  # The kernel has ended: the client sees that the answer has no end.


main(*sys.argv[1:])
