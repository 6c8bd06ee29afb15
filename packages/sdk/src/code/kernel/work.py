"""The worker, the process that the code runs in: executes one cell after the other and reports each result.

    work.py FD

FD is a socket to the kernel. Each line received is a cell: {"code", "count"}. The worker sends {"ready"} first, and for
each cell any number of {"result": …}, then {"end": …}. Output goes to stdout and stderr, which the kernel reads.
To keep output and results in order, the kernel answers a result that "waits" with {} once it has read the output that
was printed before.
"""

import ast
import builtins
import contextlib
import importlib
import io
import json
import linecache
import os
import signal
import site
import socket
import sys
import threading
import traceback
import types

import vivarium_display as rich

ERROR_CHARS = 1024 * 1024
AWAITS = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
IS_COROUTINE = 0x80


class Worker:
    def __init__(self, channel):
        self.channel = channel
        self.lines = channel.makefile("rb")
        self.sending = threading.Lock()
        self.pid = os.getpid()
        self.is_interruptible = False
        self.was_interrupted = False
        self.loop = None
        # Copies of stdout and stderr that the code cannot close by accident. Python's streams write to them.
        self.outputs = {1: os.dup(1), 2: os.dup(2)}
        self.names = self.make_main().__dict__

    def make_main(self):
        """The module that the code sees as `__main__`: a real module, so that pickle and similar find its names."""
        main = types.ModuleType("__main__")
        main.__builtins__ = builtins
        main.display = self.display
        sys.modules["__main__"] = main
        return main

    def serve(self):
        for line in self.lines:
            cell = json.loads(line)
            if cell:
                self.run(cell["code"], cell["count"])

    def run(self, code, count):
        self.prepare()
        raised = self.attempt(lambda: self.execute(code, f"<cell {count}>"))
        self.exit_if_forked(raised)
        later = self.attempt(self.show_figures)
        raised = later if raised is None else raised
        self.flush()
        self.send({"end": {"error": None if raised is None else describe(raised)}})

    def attempt(self, step):
        """Runs a step that an interrupt can end. Returns the exception that it raised, or None."""
        try:
            try:
                self.is_interruptible = True
                step()
            finally:
                self.is_interruptible = False
        except BaseException as raised:
            self.is_interruptible = False
            return raised

    def prepare(self):
        """Restores the streams that earlier code may have closed or replaced."""
        signal.signal(signal.SIGINT, self.on_interrupt)
        importlib.invalidate_caches()
        self.was_interrupted = False
        for number, name in ((1, "stdout"), (2, "stderr")):
            if not is_same_file(number, self.outputs[number]):
                os.dup2(self.outputs[number], number)
            stream = getattr(sys, name, None)
            if stream is None or getattr(stream, "closed", False):
                setattr(sys, name, open_stream(self.outputs[number]))

    def execute(self, code, name):
        """Runs a cell and shows the value of an expression at its end, unless a semicolon follows."""
        linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
        tree = ast.parse(code, name)
        last = None
        if tree.body and isinstance(tree.body[-1], ast.Expr) and not code.rstrip().endswith(";"):
            last = ast.Expression(tree.body.pop().value)
        self.evaluate(compile(tree, name, "exec", AWAITS, dont_inherit=True))
        if last is None:
            return
        value = self.evaluate(compile(last, name, "eval", AWAITS, dont_inherit=True))
        if value is not None:
            self.names["_"] = value
            self.show(value, is_main=True)

    def evaluate(self, compiled):
        value = eval(compiled, self.names)
        if not compiled.co_flags & IS_COROUTINE:
            return value
        import asyncio

        if self.loop is None or self.loop.is_closed():
            self.loop = asyncio.new_event_loop()
        task = self.loop.create_task(value)
        try:
            return self.loop.run_until_complete(task)
        except KeyboardInterrupt:
            task.cancel()
            self.loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
            raise

    def display(self, *values):
        """The function `display(a, b)` of notebooks, which shows values in the middle of a cell."""
        for value in values:
            self.show(value)

    def show(self, value, is_main=False):
        formats, is_cut = rich.formats_of(value)
        rich.close_figure(value)
        self.send_result(formats, is_main, is_cut)

    def show_figures(self):
        for formats in rich.open_figures():
            self.send_result(formats, is_main=False)

    def send_result(self, formats, is_main, is_cut=False):
        can_wait = os.getpid() == self.pid and threading.current_thread() is threading.main_thread()
        self.flush()
        self.send({"result": {"main": is_main, "formats": formats, "is_cut": is_cut}, "waits": can_wait})
        if can_wait:
            self.lines.readline()

    def send(self, message):
        if os.getpid() != self.pid:
            return
        with self.undisturbed(), self.sending:
            self.channel.sendall(json.dumps(message).encode() + b"\n")

    @contextlib.contextmanager
    def undisturbed(self):
        """Delays interrupts: a message that an interrupt cuts in half would break the connection."""
        if threading.current_thread() is not threading.main_thread():
            yield  # Interrupts are delivered to the main thread only.
            return
        was_interruptible, self.is_interruptible = self.is_interruptible, False
        try:
            yield
        finally:
            self.is_interruptible = was_interruptible
        if self.was_interrupted and was_interruptible:
            self.was_interrupted = False
            raise KeyboardInterrupt

    def on_interrupt(self, number, frame):
        if self.is_interruptible:
            raise KeyboardInterrupt
        self.was_interrupted = True

    def flush(self):
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except Exception:  # The code may have put any object there.
                pass

    def exit_if_forked(self, raised):
        """Ends a process that the code has forked, as Python would. Only the worker itself runs the next cell."""
        if os.getpid() == self.pid:
            return
        wanted = raised.code if isinstance(raised, SystemExit) else raised
        if wanted is not None and not isinstance(wanted, int):
            print(describe(raised)["traceback"] if wanted is raised else wanted, file=sys.stderr)
        self.flush()
        os._exit(0 if wanted is None else wanted & 0xFF if isinstance(wanted, int) else 1)


def describe(raised):
    """The exception with its traceback, without the frames of this program."""
    try:
        value = str(raised)
    except Exception:
        value = "<the exception has no text>"
    lines = "".join(traceback.format_exception(type(raised), raised, frames_of_code(raised.__traceback__)))
    return {"name": type(raised).__name__[:ERROR_CHARS], "value": cut(value), "traceback": cut(lines)}


def cut(text):
    """Keeps the beginning and the end of a long text: the last line of a traceback is the important one."""
    if len(text) <= ERROR_CHARS:
        return text
    return text[: ERROR_CHARS // 2] + "\n…\n" + text[-ERROR_CHARS // 2 :]


def frames_of_code(at):
    """The traceback without this program's frames: those above the code, and that of an interrupt below it."""
    while at is not None and not at.tb_frame.f_code.co_filename.startswith("<cell "):
        at = at.tb_next
    first = at
    while at is not None:
        if at.tb_next is not None and at.tb_next.tb_frame.f_code is Worker.on_interrupt.__code__:
            at.tb_next = None
        at = at.tb_next
    return first


def is_same_file(one, other):
    try:
        return os.path.samestat(os.fstat(one), os.fstat(other))
    except OSError:
        return False


def open_stream(number):
    """A stream that flushes every line, and escapes characters that UTF-8 cannot encode."""
    raw = io.FileIO(number, "w", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(raw, 65536), encoding="utf-8", errors="backslashreplace", line_buffering=True
    )


def die_with_parent():
    """Asks Linux to kill this process when the kernel has ended, also when the kernel was killed."""
    try:
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    except Exception:
        pass


def main(number):
    die_with_parent()
    channel = socket.socket(fileno=int(number))
    channel.set_inheritable(False)
    worker = Worker(channel)
    signal.signal(signal.SIGINT, worker.on_interrupt)
    sys.stdout, sys.stderr = open_stream(worker.outputs[1]), open_stream(worker.outputs[2])
    # As in an interactive Python: the path has the working directory, and the user's packages. Their folder is added
    # even if it does not exist yet, so that a package installed later is found.
    sys.path[0] = ""
    if site.ENABLE_USER_SITE and site.getusersitepackages() not in sys.path:
        sys.path.append(site.getusersitepackages())
    sys.argv = [""]
    sys.meta_path.append(rich.FiguresBackend(worker.show_figures))
    os.environ["MPLBACKEND"] = f"module://{rich.BACKEND}"
    worker.send({"ready": True})
    worker.serve()


main(sys.argv[1])
