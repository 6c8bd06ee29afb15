/**
 * Floor F4: bytes per second through the bare virtio-serial port of a machine loaded by hand. A program in the guest
 * stops the agent, takes the port from it, and moves bytes with nothing but `dd`.
 */
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { join } from "node:path";
import type { Writable } from "node:stream";
import { sleep } from "@vivarium/kit/clock";
import { execInGuest } from "../../packages/node/src/guest/exec.ts";
import { resumeAs } from "../../packages/node/src/machines/handshake.ts";
import type { Loadable } from "../../packages/node/src/snapshots/manifest.ts";
import { type MachineByHand, startByHand, type TapNamespace } from "../support/machine-by-hand.ts";

const TAKEN_WITHIN_MS = 60_000;
const BLOCK = Buffer.alloc(64 * 1024, "x");

/**
 * Answers each letter of the host. d sends bytes, u reads bytes and then confirms them; D and U do the same with a
 * file, which is on the disk before the confirmation; p sends bytes that another program writes into a pipe.
 */
const PORT_THIEF = `
import ctypes, os, subprocess, sys, time
size = sys.argv[1]
libc = ctypes.CDLL(None, use_errno=True)
PIDFD_OPEN, PIDFD_GETFD, SEIZE, INTERRUPT = 434, 438, 0x4206, 0x4207
if os.fork(): os._exit(0)
os.setsid()
time.sleep(1)
if libc.ptrace(SEIZE, 1, None, None) or libc.ptrace(INTERRUPT, 1, None, None): sys.exit("ptrace")
os.waitpid(1, 0x40000000)
theirs = next(n for n in os.listdir("/proc/1/fd") if "/vport" in os.readlink("/proc/1/fd/" + n))
port = libc.syscall(PIDFD_GETFD, libc.syscall(PIDFD_OPEN, 1, 0), int(theirs), 0)
os.set_blocking(port, True)
def move(source, target, *more):
    words = ["dd", "bs=32k", "iflag=fullblock,count_bytes", "count=" + size, "status=none", *more]
    subprocess.run(words, stdin=source, stdout=target, check=True)
zero, null = os.open("/dev/zero", os.O_RDONLY), os.open("/dev/null", os.O_WRONLY)
FILE = "/var/tmp/bare-port"
while True:
    letter = os.read(port, 1)
    if letter == b"?": os.write(port, b"!")
    elif letter == b"d": move(zero, port)
    elif letter == b"D":
        with open(FILE, "rb") as file: move(file, port)
    elif letter == b"p":
        writer = subprocess.Popen(["head", "-c", size, "/dev/zero"], stdout=subprocess.PIPE)
        move(writer.stdout, port)
        writer.stdout.close()
        writer.wait()
    elif letter == b"u":
        move(port, null)
        os.write(port, b"!")
    elif letter == b"U":
        with open(FILE, "wb") as file: move(port, file, "conv=fsync")
        os.write(port, b"!")
    else: time.sleep(0.1)
`;

/** Each method returns the milliseconds that the agreed number of bytes takes. */
export interface BarePort {
  /** The machine's process. */
  pid: number;
  /** Out of the guest. */
  down(): Promise<number>;
  /** Into the guest, until it has read the last byte. */
  up(): Promise<number>;
  /** Into a file of the guest, until the file is on its disk. */
  upToFile(): Promise<number>;
  /** Out of the file that was written last. */
  downFromFile(): Promise<number>;
  /** Out of a pipe that another program of the guest writes into. */
  downFromPipe(): Promise<number>;
  end(): Promise<void>;
}

export async function openBarePort(
  source: Loadable,
  poolDir: string,
  network: TapNamespace,
  bytes: number,
): Promise<BarePort> {
  const machine = await startByHand(source, poolDir, network);
  try {
    await stealPort(machine, bytes);
    const port = await takePort(join(machine.dir, "agent.sock"));
    return {
      pid: machine.pid,
      down: () => down(port, bytes, "d"),
      up: () => up(port, bytes, "u"),
      upToFile: () => up(port, bytes, "U"),
      downFromFile: () => down(port, bytes, "D"),
      downFromPipe: () => down(port, bytes, "p"),
      end: async () => {
        port.destroy();
        await machine.end();
      },
    };
  } catch (error) {
    await machine.end();
    throw error;
  }
}

async function stealPort(machine: MachineByHand, bytes: number): Promise<void> {
  await machine.go();
  await resumeAs(machine.agent, { identity: { hostname: "bench", no_sudo: false } });
  const argv = ["sudo", "python3", "-c", PORT_THIEF, String(bytes)];
  const frames = await execInGuest(machine.agent, { argv, env: {}, timeout_ms: TAKEN_WITHIN_MS });
  for await (const _ of frames);
  machine.agent.close();
}

/** Asks until the program answers: the agent does not answer these bytes. */
async function takePort(socketPath: string): Promise<Socket> {
  const deadline = Date.now() + TAKEN_WITHIN_MS;
  await sleep(3_000);
  const port = connect(socketPath);
  await once(port, "connect");
  while (Date.now() < deadline) {
    port.write("?");
    const answered = await Promise.race([once(port, "data"), sleep(2_000)]);
    if (answered) return port;
  }
  port.destroy();
  throw new Error("the guest's program did not take the port");
}

async function down(port: Socket, bytes: number, letter: string): Promise<number> {
  const startedAt = performance.now();
  port.write(letter);
  let left = bytes;
  for await (const chunk of port.iterator({ destroyOnReturn: false })) {
    left -= chunk.length;
    if (left <= 0) break;
  }
  return performance.now() - startedAt;
}

async function up(port: Socket, bytes: number, letter: string): Promise<number> {
  const startedAt = performance.now();
  port.write(letter);
  const taken = once(port, "data");
  port.resume();
  await writeBlocks(port, bytes);
  await taken;
  return performance.now() - startedAt;
}

export async function writeBlocks(sink: Writable, bytes: number): Promise<void> {
  for (let left = bytes; left > 0; left -= BLOCK.length)
    if (!sink.write(BLOCK.subarray(0, left))) await once(sink, "drain");
}
