/** The commands that install packages and start code, by language. Pure. */
import type { Language } from "@vivarium/contract/api";

interface LanguageCommands {
  file: string;
  run: string[];
  install: (packages: string[]) => string[];
}

export const WORKSPACE = "/workspace";

/** Installs need no root: they go to the user's site-packages, or to node_modules of the workspace. */
export const LANGUAGE_COMMANDS: Record<Language, LanguageCommands> = {
  python: {
    file: `${WORKSPACE}/main.py`,
    run: ["python3", "main.py"],
    install: (packages) => [
      ...["python3", "-m", "pip", "install", "--user", "--no-input", "--disable-pip-version-check", "-q"],
      ...packages,
    ],
  },
  node: {
    file: `${WORKSPACE}/main.js`,
    run: ["node", "main.js"],
    install: (packages) => ["npm", "install", "--no-audit", "--no-fund", "--no-save", ...packages],
  },
  bun: {
    file: `${WORKSPACE}/main.ts`,
    run: ["bun", "run", "main.ts"],
    install: (packages) => ["bun", "add", ...packages],
  },
};

/** Lets pip install although apt manages the base image's Python, because the machine is thrown away. */
export const INSTALL_ENV = { PIP_BREAK_SYSTEM_PACKAGES: "1" };
