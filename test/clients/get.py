"""Asks for addresses with httpx or requests as they are, and prints status and body of each answer."""

import importlib
import sys

client = importlib.import_module(sys.argv[1])
for address in sys.argv[2:]:
    answer = client.get(address, timeout=60)
    print(answer.status_code, answer.text)
