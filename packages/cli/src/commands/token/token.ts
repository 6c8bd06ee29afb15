/** `viv token`: the group of the verbs mint, ls and revoke. */
import { CAPABILITIES, type Capability } from "@vivarium/contract/api";
import { Command, Option } from "commander";
import { parseLongDuration } from "../../args/values.ts";
import { CliError } from "../../cli-error.ts";
import { renderMinted, renderTokens } from "../../print/token.ts";
import { doEach } from "../do-each.ts";
import { type Call, sessionVerb, type Verb } from "../verb.ts";

export function tokenCommand(): Command {
  return new Command("token")
    .summary("credentials for one session: mint, ls, revoke")
    .description(
      "Scoped tokens: credentials for one session, with a part of what a key may do there. Wakes nothing.",
    )
    .addCommand(mintCommand())
    .addCommand(lsCommand())
    .addCommand(revokeCommand());
}

function mintCommand(): Verb {
  return sessionVerb("mint", [
    "viv token mint 4x7k2m9q0a1b2c3d4e5f6 --ttl 1h --may pty --may view",
    "VIV_API_KEY=$(viv token mint my-session --ttl 15m --may exec) viv exec 4x7k2m9q0a1b2c3d4e5f6 -- date",
  ])
    .summary("mint a token for a session, shown this once")
    .description(
      "Mint a token that reaches this session alone. It is shown this once; in a pipe alone. It cannot be extended.",
    )
    .requiredOption("--ttl <time>", "how long it works: 90s, 15m, 12h or 30d", parseLongDuration)
    .addOption(
      new Option("--may <capability...>", "what it may do; repeatable; default: everything").choices(
        CAPABILITIES,
      ),
    )
    .option("--json", "print the token and its record as JSON")
    .does(async (call: Call<{ ttl: number; may?: Capability[] }>, reference: string) => {
      const { session } = await call.find(reference);
      const { ttl, may } = call.options;
      const minted = await session.tokens.mint({
        ttl_seconds: Math.max(1, Math.round(ttl / 1000)),
        ...(may && { capabilities: [...new Set(may)] }),
      });
      call.print(minted, renderMinted, ({ token }) => token);
      if (!call.options.json) call.terminal.note("viv: the token is not shown again");
    });
}

function lsCommand(): Verb {
  return sessionVerb("ls", ["viv token ls 4x7k2m9q0a1b2c3d4e5f6"])
    .summary("list a session's tokens")
    .description("List the tokens of a session that have not ended, newest first.")
    .option("--json", "print [token, …]")
    .does(async (call: Call, reference: string) => {
      const { session } = await call.find(reference);
      call.print(await session.tokens.list(), (tokens) => renderTokens(tokens, new Date()));
    });
}

function revokeCommand(): Verb {
  return sessionVerb("revoke", ["viv token revoke 4x7k2m9q0a1b2c3d4e5f6 1f3a9c"])
    .summary("revoke tokens of a session")
    .description(
      "Revoke tokens of a session. They are refused from now on, and what they have open ends within seconds.",
    )
    .argument("<hash...>", "hashes of the tokens, or their beginnings (viv token ls)")
    .option("--json", 'print {"results": [{hash, ok, error?, code?}, …]}')
    .does(async (call: Call, reference: string, beginnings: string[]) => {
      const { session } = await call.find(reference);
      const known = (await session.tokens.list()).map(({ hash }) => hash);
      const hashes = beginnings.map((beginning) => wholeHash(known, beginning));
      return doEach(call, { ids: hashes, key: "hash" }, (hash) => session.tokens.revoke(hash));
    });
}

function wholeHash(known: string[], beginning: string): string {
  const found = known.filter((hash) => hash.startsWith(beginning));
  if (found.length === 1) return found[0] as string;
  throw new CliError(
    found.length === 0
      ? `the session has no token whose hash begins with ${JSON.stringify(beginning)}`
      : `${found.length} tokens have hashes that begin with ${JSON.stringify(beginning)}: give more of it`,
  );
}
