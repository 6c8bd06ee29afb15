/**
 * V8 flags for gateway, node and control. A stream produces short-lived buffers that are a hundred times larger than
 * what the collector counts for them, so young objects are collected often, and the whole heap only when it has
 * doubled. By default it collected the whole heap every 20 MiB of a stream: 100 of the node's 163 ms of CPU time for a
 * download of 64 MiB, and 130 of control's 213. Memory grows as little as before, by 50 MiB at most for 512 MiB up and
 * down. Concurrent sweeping is off: its helper threads would take two cores from the stream.
 */
export const COLLECTOR = [
  "--max-semi-space-size=1",
  "--heap-growing-percent=100",
  "--no-concurrent-sweeping",
];
