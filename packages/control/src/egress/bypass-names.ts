/**
 * Names that no policy may list. Behind them, other names can be reached without a check. Each name includes all names
 * below it.
 */

/** Public DNS-over-HTTPS resolvers. A guest that reaches one resolves names that the gateway never sees. */
export const DNS_OVER_HTTPS = [
  "adguard-dns.com",
  "blahdns.com",
  "cleanbrowsing.org",
  "cloudflare-dns.com",
  "cloudflare-gateway.com",
  "controld.com",
  "dns-family.adguard.com",
  "dns.adguard.com",
  "dns.alidns.com",
  "dns.digitale-gesellschaft.ch",
  "dns.google",
  "dns.mullvad.net",
  "dns.nextdns.io",
  "dns.njal.la",
  "dns.pub",
  "dns.rabbitdns.org",
  "dns.sb",
  "dns.switch.ch",
  "dns.twnic.tw",
  "dns0.eu",
  "dnsforge.de",
  "doh.360.cn",
  "doh.applied-privacy.net",
  "doh.dns.apple.com",
  "doh.dns.sb",
  "doh.familyshield.opendns.com",
  "doh.ffmuc.net",
  "doh.libredns.gr",
  "doh.opendns.com",
  "doh.pub",
  "doh.sandbox.opendns.com",
  "doh.tiar.app",
  "doh.umbrella.com",
  "doh.xfinity.com",
  "freedns.controld.com",
  "jp.tiar.app",
  "mask-api.icloud.com",
  "mask-h2.icloud.com",
  "mask.icloud.com",
  "mozilla.cloudflare-dns.com",
  "odoh.cloudflare-dns.com",
  "one.one.one.one",
  "ordns.he.net",
  "public.dns.iij.jp",
  "quad9.net",
  "unfiltered.adguard-dns.com",
  "wikimedia-dns.org",
] as const;

/** Outer names of Encrypted Client Hello (ECH). The inner name, which decides where the bytes go, is encrypted. */
export const ECH_FRONTS = [
  "cloudflare-ech.com",
  "cloudflare-esni.com",
  "crypto.cloudflare.com",
  "tls-ech.dev",
  "defo.ie",
] as const;
