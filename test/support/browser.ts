/** A real browser without a window. Names below localhost lead to this host by themselves. */
import { type Browser, chromium } from "playwright-core";

export async function startBrowser(): Promise<Browser> {
  return await chromium.launch({
    executablePath: "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
  });
}
