// Says where it runs: in a virtual machine of its own, under a kernel that is not the host's.
import os from "node:os";

const where: string = `Bun ${process.versions.bun}, kernel ${os.release()}, user ${os.userInfo().username}`;
console.log("Hello from inside a virtual machine!");
console.log(where);
