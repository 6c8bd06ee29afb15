/** Programs for a session's machine that notice lost data. */

/**
 * Counts in memory, sends each count over a TCP connection to itself, and writes the echo to a file. A gap, a repeat, a
 * broken connection or a wrong echo ends it with a line that begins with "broken". `token` exists only in memory:
 * SIGUSR1 writes it with the count to /workspace/memory, SIGUSR2 makes a new one first.
 */
export const COUNTER = `
import os, signal, socket, sys, threading, time
token = os.urandom(32).hex()
listener = socket.socket(); listener.bind(("127.0.0.1", 0)); listener.listen()
def echo(peer):
    while True:
        data = peer.recv(64)
        if not data: return
        peer.sendall(data)
def serve():
    peer, _ = listener.accept()
    echo(peer)
threading.Thread(target=serve, daemon=True).start()
link = socket.create_connection(listener.getsockname())
log = open("/workspace/counter", "a", buffering=1)
count = 0
def report(*_):
    with open("/workspace/memory.new", "w") as f: f.write(f"{token} {count}\\n")
    os.rename("/workspace/memory.new", "/workspace/memory")
def renew(*_):
    global token
    token = os.urandom(32).hex()
    report()
signal.signal(signal.SIGUSR1, report)
signal.signal(signal.SIGUSR2, renew)
try:
    while True:
        count += 1
        message = str(count).encode()
        link.sendall(message)
        if link.recv(64) != message: raise Exception("wrong echo")
        log.write(f"{count}\\n")
        time.sleep(0.05)
except BaseException as error:
    log.write(f"broken: {error!r}\\n")
`;

/** Shell command that starts the counter, which keeps running when the command ends. */
export const START_COUNTER = [
  "sh",
  "-c",
  `cat > /workspace/counter.py << 'END'\n${COUNTER}\nEND\n` +
    "setsid python3 /workspace/counter.py > /workspace/counter.err 2>&1 & " +
    "for i in $(seq 200); do [ -s /workspace/counter ] && exit 0; sleep 0.1; done; cat /workspace/counter.err; exit 1",
];

/** Shell command that prints the counter's memory as "token count". */
export const TELL_MEMORY = (signal: "USR1" | "USR2" = "USR1") =>
  `rm -f /workspace/memory; pkill -${signal} -f '[c]ounter.py'; until [ -e /workspace/memory ]; do sleep 0.1; done; cat /workspace/memory`;

/** Checks that a log has all numbers from 1 in order; returns the last. */
export function lastCount(log: string): number {
  const lines = log.trimEnd().split("\n");
  lines.forEach((line, i) => {
    if (line !== String(i + 1))
      throw new Error(`line ${i + 1} of the counter's log is ${JSON.stringify(line)}`);
  });
  return lines.length;
}

/**
 * Swaps the directory `swap/a` with a link to `outside`, and the file `swap/f` with a link to `outside/f`, without
 * pause.
 */
export const LINK_SWAPPER = `
import ctypes, itertools
rename = ctypes.CDLL(None).renameat2
AT_FDCWD, EXCHANGE = -100, 2
pairs = [(b"/workspace/swap/a", b"/workspace/swap/b"), (b"/workspace/swap/f", b"/workspace/swap/g")]
for one, other in itertools.cycle(pairs): rename(AT_FDCWD, one, AT_FDCWD, other, EXCHANGE)
`;

/** Resolves a path before it opens it, as a careless program would, and reports when the race was lost. */
export const FOOLED_READER = `
import os, time
until = time.monotonic() + 60
path = "/workspace/swap/a/f"
while time.monotonic() < until:
    try:
        if not os.path.realpath(path).startswith("/workspace/"): continue
        if "outside" in open(path).read():
            print("fooled")
            break
    except OSError: pass
`;
