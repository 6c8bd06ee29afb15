/** Starts a real headless browser. Names below localhost lead to this host without DNS. */
import { type Browser, chromium } from "playwright-core";

export async function startBrowser(): Promise<Browser> {
  return await chromium.launch({
    executablePath: "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
  });
}
