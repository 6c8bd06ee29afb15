"""A Python kernel: takes code from callers, one piece at a time, and keeps the process in which all of it runs.

    serve.py SOCKET

Callers connect to a Unix socket (ask.py does) and send one JSON object as a line:

    {"do": "run", "code", "timeout_s"}   → begin, then stdout, stderr and result as they come, then end or died
    {"do": "interrupt"}                  → ok; the running code gets a KeyboardInterrupt
    {"do": "restart"}                    → ok; the variables are gone, running code has died

The answer is one JSON object a line, each with an "event", and ends with the connection. A caller who disconnects
cancels the request. The code runs in another process, the worker, so it cannot break the kernel. The kernel reads
printed output only as fast as the caller takes it, interrupts code that has timed out, kills code that ignores
interrupts, and starts a new worker when one has died.
"""

import codecs
import collections
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time

WORK = os.path.join(os.path.dirname(os.path.abspath(__file__)), "work.py")
CHUNK_BYTES = 65536
REQUEST_BYTES = 4 * 1024 * 1024
# Bytes of output buffered for a slow caller; beyond it the code is blocked.
WAITING_BYTES = 1024 * 1024
# Characters of output printed between runs that are kept, the last ones. They are sent with the next run.
BETWEEN_CHARS = 65536
# Seconds until interrupted code is killed. Until then it is interrupted every second.
GRACE_S = 5


class Caller:
    """One connection: its request, and the part of the answer that the caller has not taken yet."""

    def __init__(self, connection):
        self.connection = connection
        self.inbox = b""
        self.outbox = bytearray()
        self.request = None
        self.is_gone = False
        self.is_answered = False

    def emit(self, event, **facts):
        if not self.is_gone:
            self.outbox += json.dumps({"event": event, **facts}).encode() + b"\n"


class Worker:
    """The process that runs the code, and the connections to it."""

    def __init__(self):
        self.channel, theirs = socket.socketpair()
        self.process = subprocess.Popen(
            [sys.executable, WORK, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        theirs.close()
        self.exit = os.pidfd_open(self.process.pid)
        # An interrupt before the worker is ready would end it.
        self.is_ready = False
        self.inbox = bytearray()
        self.pipes = {"stdout": self.process.stdout, "stderr": self.process.stderr}
        self.decoders = {name: codecs.getincrementaldecoder("utf-8")("replace") for name in self.pipes}
        for pipe in (self.channel, *self.pipes.values()):
            os.set_blocking(pipe.fileno(), False)

    def read(self, name):
        """The text in the pipe, one chunk at most: a process that writes all the time must not block the kernel.

        None when every writer has closed the pipe.
        """
        try:
            chunk = os.read(self.pipes[name].fileno(), CHUNK_BYTES)
        except BlockingIOError:
            return ""
        return self.decoders[name].decode(chunk) if chunk else None

    def send(self, number):
        """Sends the signal to every process that the code has started, as a terminal's Ctrl-C would."""
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            pass

    def kill_and_reap(self):
        self.send(signal.SIGKILL)
        self.process.wait()
        os.close(self.exit)
        for pipe in (self.channel, *self.pipes.values()):
            pipe.close()
        return self.process.returncode


class Kernel:
    def __init__(self, path):
        self.selector = selectors.DefaultSelector()
        self.listener = listen(path)
        self.selector.register(self.listener, selectors.EVENT_READ, self.accept)
        self.between = {"stdout": "", "stderr": ""}
        self.waiting = collections.deque()
        self.current = None
        self.count = 0
        # How the last worker ended, until a caller has received it: a caller has to know that the variables are lost.
        self.loss = None
        self.start_worker()

    def serve(self):
        while True:
            for key, mask in self.selector.select(self.seconds_to_signal()):
                key.data(mask)
            self.signal_if_due()
            if self.current is None and self.waiting:
                self.begin_next()

    # Callers

    def accept(self, mask):
        try:
            connection, _ = self.listener.accept()
        except OSError:
            return  # The caller has disconnected.
        connection.setblocking(False)
        caller = Caller(connection)
        self.selector.register(connection, selectors.EVENT_READ, lambda mask: self.attend(caller, mask))

    def attend(self, caller, mask):
        if caller.is_gone:
            return
        try:
            if mask & selectors.EVENT_WRITE:
                sent = caller.connection.send(memoryview(caller.outbox)[:CHUNK_BYTES])
                del caller.outbox[:sent]
            if mask & selectors.EVENT_READ:
                chunk = caller.connection.recv(CHUNK_BYTES)
                if not chunk:
                    return self.part(caller)
                self.hear(caller, chunk)
        except BlockingIOError:
            pass
        except OSError:
            return self.part(caller)
        self.watch(caller)

    def hear(self, caller, chunk):
        if caller.request is not None:
            return
        caller.inbox += chunk
        if len(caller.inbox) > REQUEST_BYTES:
            return self.answer(caller, "refused", reason="the request is too long")
        if not caller.inbox.endswith(b"\n"):
            return
        try:
            caller.request = json.loads(caller.inbox)
            todo = {"run": self.waiting.append, "interrupt": self.interrupt, "restart": self.restart}
            todo[caller.request["do"]](caller)
        except (ValueError, KeyError, TypeError):
            caller.request = {}
            self.answer(caller, "refused", reason="no request that this kernel knows")

    def watch(self, caller):
        """Waits for the caller to read or disconnect. Blocks the code while the caller is slow."""
        if caller.is_gone:
            return
        if caller.is_answered and not caller.outbox:
            return self.part(caller)
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if caller.outbox else 0)
        self.selector.modify(caller.connection, events, lambda mask: self.attend(caller, mask))
        if caller is self.current:
            self.hold_output(len(caller.outbox) > WAITING_BYTES)

    def answer(self, caller, event, **facts):
        caller.emit(event, **facts)
        caller.is_answered = True
        self.watch(caller)

    def part(self, caller):
        caller.is_gone = True
        caller.outbox.clear()
        self.selector.unregister(caller.connection)
        caller.connection.close()
        if caller in self.waiting:
            self.waiting.remove(caller)
        if caller is self.current:
            self.hold_output(False)
            self.stop()

    # Requests

    def begin_next(self):
        if self.loss is not None:
            loss, self.loss = self.loss, None
            return self.answer(self.waiting.popleft(), "died", timed_out=False, **loss)
        if self.worker is None:
            self.start_worker()
        if self.worker.is_ready:
            self.begin(self.waiting.popleft())

    def begin(self, caller):
        self.current = caller
        self.count += 1
        self.is_stopping = False
        timeout_s = caller.request.get("timeout_s")
        self.next_signal = None if timeout_s is None else time.monotonic() + timeout_s
        self.has_timed_out = False
        caller.emit("begin", count=self.count)
        for name, text in self.between.items():
            if text:
                caller.emit(name, text=text)
                self.between[name] = ""
        cell = json.dumps({"code": caller.request.get("code", ""), "count": self.count}).encode() + b"\n"
        self.worker.channel.setblocking(True)
        try:
            self.worker.channel.sendall(cell)
            self.worker.channel.setblocking(False)
        except OSError:
            pass  # The worker has died; `notice_death` is called next.
        self.watch(caller)

    def interrupt(self, caller):
        if self.current is not None:
            self.worker.send(signal.SIGINT)
        self.answer(caller, "ok", was_running=self.current is not None)

    def restart(self, caller):
        if self.worker is not None:
            self.lose_worker(reason="restarted")
        self.loss = None
        self.start_worker()
        self.answer(caller, "ok")

    # Time

    def seconds_to_signal(self):
        if self.current is None or self.next_signal is None:
            return None
        return max(0, self.next_signal - time.monotonic())

    def signal_if_due(self):
        if self.current is None or self.next_signal is None or time.monotonic() < self.next_signal:
            return
        if not self.is_stopping:
            self.has_timed_out = True
        self.stop()

    def stop(self):
        """Interrupts the running code, or kills it GRACE_S after the first interrupt. Repeated every second."""
        now = time.monotonic()
        if not self.is_stopping:
            self.is_stopping = True
            self.last_signal = now + GRACE_S
        self.worker.send(signal.SIGINT if now < self.last_signal else signal.SIGKILL)
        self.next_signal = now + 1

    # The worker

    def start_worker(self):
        self.worker = worker = Worker()
        self.is_held = True
        self.hold_output(False)
        self.selector.register(worker.exit, selectors.EVENT_READ, lambda mask: self.notice_death(worker))

    def hold_output(self, is_held):
        """Stops or resumes reading from the worker. While nothing is read, the pipes fill and the code blocks."""
        if self.worker is None or is_held == self.is_held:
            return
        self.is_held = is_held
        worker = self.worker
        if is_held:
            for pipe in (worker.channel, *worker.pipes.values()):
                self.unwatch(pipe)
            return
        self.selector.register(worker.channel, selectors.EVENT_READ, lambda mask: self.read_channel(worker))
        for name, pipe in worker.pipes.items():
            self.selector.register(pipe, selectors.EVENT_READ, lambda mask, name=name: self.read_pipe(worker, name))

    def unwatch(self, pipe):
        try:
            self.selector.unregister(pipe)
        except KeyError:
            pass

    def read_pipe(self, worker, name):
        if worker is not self.worker or self.is_held:
            return
        text = worker.read(name)
        if text is None:
            self.unwatch(worker.pipes[name])
        elif text and self.current is not None:
            self.current.emit(name, text=text)
            self.watch(self.current)
        elif text:
            self.between[name] = (self.between[name] + text)[-BETWEEN_CHARS:]

    def read_channel(self, worker):
        if worker is not self.worker or self.is_held:
            return
        try:
            chunk = worker.channel.recv(CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        if not chunk:
            return self.unwatch(worker.channel)
        first, *rest = chunk.split(b"\n")
        worker.inbox += first
        for part in rest:
            line, worker.inbox = worker.inbox, bytearray(part)
            self.take_message(worker, line)

    def take_message(self, worker, line):
        try:
            message = json.loads(line)
            result, end, waits = message.get("result"), message.get("end"), message.get("waits")
        except (ValueError, AttributeError):
            return worker.send(signal.SIGKILL)  # The code wrote to the socket, which only the worker may use.
        if message.get("ready"):
            worker.is_ready = True
        if self.current is not None:
            self.read_printed(worker)
        if waits:
            worker.channel.send(b"{}\n")
        if self.current is None:
            return
        if result is not None:
            self.current.emit("result", **result)
            self.watch(self.current)
        if end is not None:
            self.finish("end", timed_out=self.has_timed_out, **end)

    def read_printed(self, worker):
        """Sends the output that was printed before a message, so that it comes first."""
        for name in worker.pipes:
            text = worker.read(name)
            if text:
                self.current.emit(name, text=text)

    def notice_death(self, worker):
        if worker is self.worker:
            self.lose_worker(reason="died")

    def lose_worker(self, reason):
        worker, self.worker = self.worker, None
        for pipe in (worker.exit, worker.channel, *worker.pipes.values()):
            self.unwatch(pipe)
        if self.current is not None:
            self.read_printed(worker)
        loss = {"reason": reason, "code": worker.kill_and_reap()}
        self.count = 0
        if self.current is None or self.current.is_gone:
            self.loss = loss
        if self.current is not None:
            self.finish("died", timed_out=self.has_timed_out, **loss)

    def finish(self, event, **facts):
        caller, self.current = self.current, None
        self.answer(caller, event, **facts)
        self.hold_output(False)


def listen(path):
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    if os.path.exists(path):
        os.unlink(path)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(128)
    listener.setblocking(False)
    return listener


def main(path):
    kernel = Kernel(path)

    def end(number, frame):
        if kernel.worker is not None:
            kernel.worker.send(signal.SIGKILL)
        os._exit(128 + number)

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    kernel.serve()


main(sys.argv[1])
