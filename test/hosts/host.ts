/** A host in a machine: QEMU emulates a processor with AMD's SVM, so the Debian inside has a /dev/kvm that works. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { openSync, readFileSync, rmSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { freePort } from "@vivarium/kit/test-support/free-port";

const MEMORY = "8G";
const SSH_LIMIT_MS = 300_000;
const SAVE_LIMIT_MS = 300_000;
const PANIC = /Kernel panic - not syncing: .*/g;
const POLL_MS = 1_000;
const ENDS_WITHIN_MS = 10_000;
const OUTPUT_CAP_CHARS = 4 * 1024 * 1024;

export interface Disk {
  /** A qcow2 file, which is written to. */
  file: string;
  /** File for a log of its writes and flushes; see write-log.ts. */
  writeLog?: string;
}

/** The results of `test/hosts/build-root`, and the disk of `test/hosts/build-project`. */
export interface HostDisks {
  /** Folder with vmlinuz, initrd.img and key. */
  root: string;
  /** The host's root, and the project. */
  disks: [Disk, Disk];
  /** Where the serial console is written. */
  console: string;
  /** Memory and devices of a host that was saved over these disks: the first boot continues it. */
  saved?: string;
}

/** Arguments of QEMU that a saved host and the machine that continues it must have in common. */
export const machineArguments = (processors: number): string[] => [
  ...["-machine", "q35", "-accel", "tcg,thread=multi"],
  ...["-cpu", "max,+svm,vgif=off,v-vmsave-vmload=off,vendor=AuthenticAMD,pku=off,la57=off"],
  ...["-smp", String(processors), "-m", MEMORY],
];

export interface Finished {
  code: number | null;
  output: string;
}

export class Host {
  #disks: HostDisks;
  readonly #machine: string[];
  #port = 0;
  #qemu: ChildProcess | undefined;
  #saved: string | undefined;
  /** Panics on the console before this boot. */
  #panics: number | undefined;

  constructor(disks: HostDisks, machine: string[]) {
    this.#disks = disks;
    this.#machine = machine;
    this.#saved = disks.saved;
  }

  /** Gives the host another root disk from its next boot on. */
  replaceRoot(disk: Disk): void {
    this.#disks = { ...this.#disks, disks: [disk, this.#disks.disks[1]] };
  }

  /** Starts the machine, and resolves once root can log in. */
  async boot(): Promise<void> {
    this.#port = await freePort();
    const log = openSync(this.#disks.console, "a");
    this.#panics = readFileSync(this.#disks.console, "utf8").match(PANIC)?.length;
    const saved = this.#saved;
    this.#saved = undefined;
    const incoming = saved === undefined ? [] : ["-incoming", `file:${saved}`];
    this.#qemu = spawn("qemu-system-x86_64", [...this.#arguments(), ...incoming], {
      stdio: ["ignore", log, log],
    });
    await this.#untilLogin();
    // A host that was saved has the time of then; one whose clock is set counts as not synchronised.
    const setClock = () => `date --set=@${Math.round(Date.now() / 1000)} && systemctl restart clock-is-set`;
    if (saved !== undefined) await this.run(setClock(), { limitMs: 60_000 });
  }

  /** Ends the host, and writes its memory and devices to a file, from which `saved` continues it over the same disks. */
  async save(file: string): Promise<void> {
    const ended = this.#ended();
    const monitor = connect(this.#monitor);
    monitor.write(`migrate "file:${file}"\nquit\n`);
    const isOver = await Promise.race([ended.then(() => true), sleep(SAVE_LIMIT_MS, false)]);
    monitor.destroy();
    if (!isOver) throw new Error(`the host was not saved within ${SAVE_LIMIT_MS / 1000} s`);
  }

  /** The path of a socket has at most 107 bytes, which that of the disks may exceed. */
  get #monitor(): string {
    return path.join(tmpdir(), `vivarium-host-${this.#port}.monitor`);
  }

  /**
   * Why the host is off, if nobody asked for it: emulated SVM now and then corrupts memory of the host that uses it, or
   * ends the emulator itself. A command that its end broke off is known a little before the end itself.
   */
  async death(): Promise<string | undefined> {
    const isOver = await Promise.race([this.#ended().then(() => true), sleep(ENDS_WITHIN_MS, false)]);
    if (!isOver || this.#qemu === undefined) return undefined;
    const panics = readFileSync(this.#disks.console, "utf8").match(PANIC);
    const isPanic = panics?.length !== this.#panics;
    const { exitCode, signalCode } = this.#qemu;
    return isPanic ? panics?.at(-1) : `QEMU ended with ${signalCode ?? `code ${exitCode}`}`;
  }

  get isOff(): boolean {
    return this.#qemu === undefined || this.#qemu.exitCode !== null || this.#qemu.signalCode !== null;
  }

  /** Runs a shell command as root. Its output goes to `show` as it comes; ended after `limitMs`, with code null. */
  async run(command: string, options: { limitMs: number; show?: (text: string) => void }): Promise<Finished> {
    const ssh = spawn("ssh", [...this.#sshOptions(), "root@127.0.0.1", command], {
      stdio: ["ignore", "pipe", "pipe"],
    });
    let output = "";
    const take = (chunk: Buffer) => {
      output = (output + chunk).slice(-OUTPUT_CAP_CHARS);
      options.show?.(String(chunk));
    };
    ssh.stdout.on("data", take);
    ssh.stderr.on("data", take);
    const timer = setTimeout(() => ssh.kill("SIGKILL"), options.limitMs);
    const [code] = (await once(ssh, "close")) as [number | null];
    clearTimeout(timer);
    return { code, output };
  }

  /** Restarts the host as an administrator would, and resolves once root can log in again. */
  async reboot(limitMs: number): Promise<void> {
    await this.shutDown(limitMs);
    await this.boot();
  }

  /** Shuts the host down as an administrator would, and resolves once it is off. */
  async shutDown(limitMs: number): Promise<void> {
    const ended = this.#ended();
    // A reboot, since QEMU ends at a reset (-no-reboot); one that hangs in its shutdown never gets there.
    await this.run("systemctl reboot", { limitMs: 60_000 });
    const isOver = await Promise.race([ended.then(() => true), sleep(limitMs, false)]);
    if (!isOver) throw new Error(`the host was not down ${limitMs / 1000} s after systemctl reboot`);
    this.#qemu = undefined;
    rmSync(this.#monitor, { force: true });
  }

  /** Ends the host at once, as a power cut does: what it had in memory is gone. */
  async cutPower(): Promise<void> {
    const ended = this.#ended();
    this.#qemu?.kill("SIGKILL");
    await ended;
    this.#qemu = undefined;
    rmSync(this.#monitor, { force: true });
  }

  async #untilLogin(): Promise<void> {
    const deadline = Date.now() + SSH_LIMIT_MS;
    for (;;) {
      if (this.#qemu?.exitCode !== null) throw new Error(`QEMU ended; its console: ${this.#disks.console}`);
      const { code } = await this.run("systemctl is-system-running --wait >/dev/null; true", {
        limitMs: SSH_LIMIT_MS,
      });
      if (code === 0) return;
      if (Date.now() > deadline)
        throw new Error(`no login after ${SSH_LIMIT_MS / 1000} s; its console: ${this.#disks.console}`);
      await sleep(POLL_MS);
    }
  }

  async #ended(): Promise<void> {
    if (!this.isOff) await once(this.#qemu as ChildProcess, "exit");
  }

  #arguments(): string[] {
    const { root, disks } = this.#disks;
    return [
      ...this.#machine,
      ...["-nodefaults", "-display", "none", "-serial", "stdio"],
      ...["-no-reboot", "-device", "virtio-rng-pci"],
      ...["-monitor", `unix:${this.#monitor},server=on,wait=off`],
      ...disks.flatMap(diskArguments),
      ...["-kernel", path.join(root, "vmlinuz"), "-initrd", path.join(root, "initrd.img")],
      ...["-append", "root=LABEL=root rw console=ttyS0 mitigations=off panic=1 oops=panic"],
      // Nothing leaves this network; only the login comes in.
      ...["-netdev", `user,id=net0,restrict=on,hostfwd=tcp:127.0.0.1:${this.#port}-:22`],
      ...["-device", "virtio-net-pci,netdev=net0"],
    ];
  }

  #sshOptions(): string[] {
    const options = {
      BatchMode: "yes",
      ConnectTimeout: "20",
      IdentitiesOnly: "yes",
      IdentityFile: path.join(this.#disks.root, "key"),
      LogLevel: "ERROR",
      ServerAliveInterval: "30",
      StrictHostKeyChecking: "no",
      UserKnownHostsFile: "/dev/null",
    };
    return [
      ...["-F", "none", "-p", String(this.#port)],
      ...Object.entries(options).flatMap(([name, value]) => ["-o", `${name}=${value}`]),
    ];
  }
}

/** A flush of the host only has to reach the log: what the machine around it loses is not what is tested. */
function diskArguments({ file, writeLog }: Disk, index: number): string[] {
  const unsafe = { "no-flush": true };
  const image = { driver: "qcow2", file: { driver: "file", filename: file, cache: unsafe } };
  const logged = {
    driver: "blklogwrites",
    file: image,
    log: { driver: "file", filename: writeLog, cache: unsafe },
  };
  const node = {
    ...(writeLog === undefined ? { ...image, cache: unsafe } : logged),
    "node-name": `disk${index}`,
  };
  return ["-blockdev", JSON.stringify(node), "-device", `virtio-blk-pci,drive=disk${index}`];
}
