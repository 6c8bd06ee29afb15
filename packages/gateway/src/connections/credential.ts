/** A credential in memory, for as long as its Connection may use it. */
import type { InjectedHeader } from "@vivarium/contract/gateway";
import { Needles } from "./needles.ts";
import { formsOf, secretsIn } from "./secret-forms.ts";
import { hasSecret, SecretScan } from "./secret-scan.ts";

export class Credential {
  readonly headerName: string;
  readonly #value: Buffer;
  readonly #needles: Needles;
  #isForgotten = false;

  constructor({ name, value }: InjectedHeader) {
    this.headerName = name;
    this.#value = Buffer.from(value, "latin1");
    this.#needles = new Needles(secretsIn(value).flatMap(formsOf));
  }

  /** The header's value, for a request that is written now. Undefined once the credential is forgotten. */
  value(): string | undefined {
    return this.#isForgotten ? undefined : this.#value.toString("latin1");
  }

  /** Whether a header of an answer carries the secret, in its name or its value. */
  isIn(text: string): boolean {
    return hasSecret(this.#needles, text);
  }

  scan(): SecretScan {
    return new SecretScan(this.#needles);
  }

  /** Overwrites the credential in memory. Strings that were made of it are left to the garbage collector. */
  forget(): void {
    this.#isForgotten = true;
    this.#value.fill(0);
    this.#needles.forget();
  }
}
