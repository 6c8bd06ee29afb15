/**
 * Programs of a hostile root in a guest. The first takes the agent's port and answers in one of these ways, on every
 * connection that the host opens, as long as the machine lives.
 */
export const MANNERS = {
  garbage: "answers the greeting, then writes random bytes for ever",
  greetings: "says for ever that it is ready, to greetings that nobody sent",
  silence: "answers the greeting and nothing else",
  pings: "floods the connection with pings",
  data: "answers every request with endless output, beyond the flow-control window",
  lies: "answers every request with what would fit another one, or nearly",
} as const;
export type Manner = keyof typeof MANNERS;

const PROGRAM = `
import json, os, random, re, struct, sys, time
manner = sys.argv[1]
drivers = "/sys/bus/virtio/drivers/virtio_console"
device = next(name for name in os.listdir(drivers) if name.startswith("virtio"))
for action in ("unbind", "bind"):
    with open(f"{drivers}/{action}", "w") as f: f.write(device)
def find_port():
    for name in os.listdir("/sys/class/virtio-ports"):
        with open(f"/sys/class/virtio-ports/{name}/name") as f:
            if f.read().strip() == "vivarium.agent": return "/dev/" + name
while not (path := find_port()): time.sleep(0.05)
while not os.path.exists(path): time.sleep(0.05)
port = os.open(path, os.O_RDWR)
open("/workspace/taken", "w").close()
def write(data):
    while data: data = data[os.write(port, data[:32768]):]
def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload
def output(kind, payload):
    return bytes([kind]) + struct.pack(">I", len(payload)) + payload
end = {"exit_code": 0, "timed_out": False, "duration_us": 1, "stdout_truncated": False, "stderr_truncated": False}
bodies = [
    output(1, b"made up"), output(3, json.dumps(end).encode()), output(3, b"{}"), output(9, b"?"),
    b'{"entries":["a"],"truncated":false}', b'{"generation":99,"version":"x","uptime_ms":1}', b"[" * 100000,
    b'{"code":"no_such_file","message":"' + b"m" * 5000 + b'"}', os.urandom(3000), b"",
]
def lie(stream):
    near = [stream, stream, stream, 1, stream + 2, 0]
    for _ in range(random.randrange(1, 5)):
        body = random.choice(bodies)
        for at in range(0, len(body), 16000):
            write(frame(0, 0, random.choice(near), body[at:at + 16000]))
    write(frame(0, 1, stream))
def answer(stream):
    write(frame(1, 4, stream, bytes([random.choice([0x88, 0x8c, 0x8e])]) if manner == "lies" else b"\\x88"))
    if manner == "lies": lie(stream)
    while manner == "data": write(frame(0, 0, stream, output(1, b"x" * 16000)))
heard, speaks = b"", False
preface = b"PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n"
while True:
    data = os.read(port, 65536)
    if not data:
        heard, speaks = b"", False
        time.sleep(0.05)
        continue
    heard += data
    for nonce in re.findall(rb"HELLO ([0-9a-f]{32})\\n", heard):
        speaks = False
        write(b"READY " + nonce + b"\\n")
        heard = heard[heard.rindex(nonce) + 33:]
        while manner == "greetings": write(b"READY " + b"0" * 32 + b"\\n")
    if not speaks and preface in heard:
        speaks, heard = True, heard[heard.index(preface) + len(preface):]
        while manner == "garbage": write(os.urandom(32768))
        write(frame(4, 0, 0))
        while manner == "pings": write(frame(6, 0, 0, b"12345678") * 1000)
    while speaks and len(heard) >= 9:
        length = int.from_bytes(heard[:3], "big")
        if len(heard) < 9 + length: break
        kind, flags, stream = heard[3], heard[4], int.from_bytes(heard[5:9], "big")
        payload, heard = heard[9:9 + length], heard[9 + length:]
        if manner == "silence": continue
        if kind in (4, 6) and not flags & 1: write(frame(kind, 1, 0, payload if kind == 6 else b""))
        if kind == 1: answer(stream)
`;

/** Command that starts the attack 1 s after it has ended itself. */
export function takeOver(manner: Manner): string[] {
  const begin = `(sleep 1; exec sudo python3 hostile.py ${manner}) > /dev/null 2>&1 &`;
  return ["sh", "-c", `cat > hostile.py << 'END'\n${PROGRAM}\nEND\n${begin}`];
}

const TRACER = `
import ctypes, os
SYSCALL, SEIZE, INTERRUPT, PEEK_USER, POKE_USER = 24, 0x4206, 0x4207, 3, 6
EVERY_CHILD, TRAP, NUMBER, SETHOSTNAME, NONE = 0x40000000, 5, 8 * 15, 170, 2 ** 64 - 1
ptrace = ctypes.CDLL(None, use_errno=True).ptrace
ptrace.restype, ptrace.argtypes = ctypes.c_long, [ctypes.c_long, ctypes.c_long, ctypes.c_ulong, ctypes.c_ulong]
def trace(request, address=0, data=0):
    ctypes.set_errno(0)
    said = ptrace(request, 1, address, data)
    if said == -1 and ctypes.get_errno(): raise OSError(ctypes.get_errno(), "ptrace")
    return said
with open("/sys/fs/cgroup/cgroup.procs", "w") as f: f.write(str(os.getpid()))
trace(SEIZE, 0, 1)
trace(INTERRUPT)
_, status = os.waitpid(1, EVERY_CHILD)
open("/workspace/traced", "w").close()
while True:
    stop, event = os.WSTOPSIG(status), status >> 16
    if stop == TRAP | 0x80 and trace(PEEK_USER, NUMBER) == SETHOSTNAME: trace(POKE_USER, NUMBER, NONE)
    trace(SYSCALL, 0, 0 if event or stop & 0x7f == TRAP else stop)
    _, status = os.waitpid(1, EVERY_CHILD)
`;

/**
 * Traces the agent and blocks one system call: the agent cannot change its machine's name, so no copy of the machine is
 * ever confirmed. All else works. The tracer is in a cgroup that no freeze stops, or the agent would stop with it.
 */
export const KEEP_ITS_NAME = [
  "sh",
  "-c",
  `rm -f traced; cat > tracer.py << 'END'\n${TRACER}\nEND\n` +
    "(exec sudo python3 tracer.py) > tracer.err 2>&1 & " +
    "for i in $(seq 300); do [ -e traced ] && exit 0; sleep 0.1; done; cat tracer.err; exit 1",
];
