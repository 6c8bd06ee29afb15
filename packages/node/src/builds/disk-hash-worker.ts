/** The program of the thread that hashes one disk, and answers with one message. */
import { parentPort, workerData } from "node:worker_threads";
import { hashDisk } from "./disk-hash.ts";

parentPort?.postMessage(await hashDisk(workerData as string));
