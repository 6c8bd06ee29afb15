/** The port that a guest dialled, by the front that its connection was redirected to. */
export const PORT_OF = { http: 80, tls: 443 } as const;
