/** The part of autocannon that is used here; the package brings no types. */
declare module "autocannon" {
  // biome-ignore lint/style/noDefaultExport: that is how the package exports it
  export default function autocannon(options: {
    url: string;
    connections: number;
    duration: number;
    headers?: Record<string, string>;
    tlsOptions?: object;
    servername?: string;
  }): Promise<{ requests: { total: number }; non2xx: number; errors: number; duration: number }>;
}
