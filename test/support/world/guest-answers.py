"""Asks a bound origin for one path many times at once, and again at once when an answer ends: HOST PATH HOW_MANY.

One process for all of them, since a slow guest starts few programs at once.
"""

import asyncio
import ssl
import sys

HOST, PATH, HOW_MANY = sys.argv[1], sys.argv[2], int(sys.argv[3])
REQUEST = f"GET {PATH} HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n".encode()
GREETINGS_AT_ONCE = 4
GREETING_S = 60
trust = ssl.create_default_context()


async def open_answer():
    reader, writer = await asyncio.open_connection(HOST, 443, ssl=trust)
    writer.write(REQUEST)
    await reader.readline()
    return reader, writer


async def ask_for_ever(greetings):
    while True:
        try:
            async with greetings:
                reader, writer = await asyncio.wait_for(open_answer(), GREETING_S)
            try:
                while await reader.read(65536):
                    pass
            finally:
                writer.close()
        except (OSError, asyncio.TimeoutError):
            pass


async def main():
    greetings = asyncio.Semaphore(GREETINGS_AT_ONCE)
    await asyncio.gather(*(ask_for_ever(greetings) for _ in range(HOW_MANY)))


asyncio.run(main())
