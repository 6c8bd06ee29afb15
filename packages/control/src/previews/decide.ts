/** Decides how an expose call changes a route (docs/spec/network.md). Pure: settings in, decision out. */
import type { ExposeResult, PreviewAuth, PreviewVisibility } from "@vivarium/contract/api";

export interface RouteSettings {
  visibility: PreviewVisibility;
  auth: PreviewAuth;
  loginUrl: string | null;
}

export interface StoredRoute extends RouteSettings {
  /** False: the call that made its bearer token was never answered, so the caller does not have it. */
  isBearerDelivered: boolean;
}

/** Change of one credential of a route. `keep` also means that a route without this credential gets none. */
export type Credential = "keep" | "mint" | "drop";

export interface Decision {
  result: ExposeResult;
  token: Credential;
  bearer: Credential;
  /** Visibility, auth or a credential changes: cookies and connections of the old version become invalid. */
  isNewVersion: boolean;
}

export function decideExpose(
  stored: StoredRoute | undefined,
  asked: RouteSettings,
  { rotate }: { rotate: boolean },
): Decision {
  if (!stored) {
    return {
      result: "created",
      token: mintIf(asked.visibility === "token"),
      bearer: mintIf(asked.auth === "bearer"),
      isNewVersion: true,
    };
  }
  const token = decideToken(stored, asked, rotate);
  const bearer = decideBearer(stored, asked, rotate);
  const isOtherGate = stored.visibility !== asked.visibility || stored.auth !== asked.auth;
  const isNewVersion = isOtherGate || token !== "keep" || bearer !== "keep";
  const isSame = !isOtherGate && bearer === "keep" && stored.loginUrl === asked.loginUrl && !rotate;
  return { result: isSame ? "unchanged" : "updated", token, bearer, isNewVersion };
}

function decideToken(stored: StoredRoute, asked: RouteSettings, rotate: boolean): Credential {
  if (asked.visibility === "public") return stored.visibility === "public" ? "keep" : "drop";
  const isBearerOff = stored.auth === "bearer" && asked.auth === "none";
  return mintIf(rotate || stored.visibility === "public" || isBearerOff);
}

function decideBearer(stored: StoredRoute, asked: RouteSettings, rotate: boolean): Credential {
  if (asked.auth === "none") return stored.auth === "none" ? "keep" : "drop";
  return mintIf(rotate || stored.auth === "none" || !stored.isBearerDelivered);
}

function mintIf(isNew: boolean): Credential {
  return isNew ? "mint" : "keep";
}
