"""Says where it runs: in a virtual machine of its own, under a kernel that is not the host's."""

import getpass
import platform

print("Hello from inside a virtual machine!")
print(f"Python {platform.python_version()}, kernel {platform.release()}, user {getpass.getuser()}")
