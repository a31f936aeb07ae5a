/** A proxy in front of a server that can cut every connection, as a bad network would. */

import { connect, createServer, type Server, type Socket } from "node:net";

export class CuttingProxy {
  readonly #server: Server;
  readonly #open = new Set<Socket>();
  /** How many connections came through. */
  connections = 0;

  private constructor(target: URL) {
    this.#server = createServer((near) => {
      this.connections += 1;
      const far = connect(Number(target.port), target.hostname);
      near.pipe(far).pipe(near);
      for (const socket of [near, far]) {
        this.#open.add(socket);
        socket.on("close", () => this.#open.delete(socket));
        socket.on("error", () => {}); // cutting is what it is for
      }
    });
  }

  static async before(url: string): Promise<CuttingProxy> {
    const proxy = new CuttingProxy(new URL(url));
    await new Promise<void>((resolve) => proxy.#server.listen(0, "127.0.0.1", resolve));
    return proxy;
  }

  get url(): string {
    const address = this.#server.address();
    if (address === null || typeof address === "string") throw new Error("it does not listen");
    return `http://127.0.0.1:${address.port}`;
  }

  cut(): void {
    for (const socket of this.#open) socket.destroy();
  }

  close(): void {
    this.#server.close();
    this.cut();
  }
}
