/** What a guest wanted to reach, by where it was sent instead. */
export const PORT_OF = { http: 80, tls: 443 } as const;
