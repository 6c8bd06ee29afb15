// Says where it runs: in a virtual machine of its own, under a kernel that is not the host's.
const os = require("node:os");

console.log("Hello from inside a virtual machine!");
console.log(`Node ${process.versions.node}, kernel ${os.release()}, user ${os.userInfo().username}`);
