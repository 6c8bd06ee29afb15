import { spawn } from "node:child_process";

/** An opener that still runs after this long has found a browser, and may be the browser itself. */
const OPENED_MS = 2000;

/** Whether the program found something that shows the page. */
export async function openInBrowser(program: string, url: string): Promise<boolean> {
  const child = spawn(program, [url], { stdio: "ignore", detached: true });
  return await new Promise<boolean>((resolve) => {
    const timer = setTimeout(() => {
      child.unref();
      resolve(true);
    }, OPENED_MS);
    const finish = (isOpen: boolean) => {
      clearTimeout(timer);
      resolve(isOpen);
    };
    child.once("error", () => finish(false));
    child.once("exit", (code) => finish(code === 0));
  });
}
