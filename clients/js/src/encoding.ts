/** Bytes in JSON: as base64. */

const STEP = 0x8000; // arguments that one call may have

export function toBase64(bytes: Uint8Array): string {
  let text = "";
  for (let at = 0; at < bytes.length; at += STEP) {
    text += String.fromCharCode(...bytes.subarray(at, at + STEP));
  }
  return btoa(text);
}

export function isBase64(value: unknown): boolean {
  return (
    typeof value === "string" && value.length % 4 === 0 && /^[A-Za-z0-9+/]*={0,2}$/.test(value)
  );
}

export function fromBase64(text: string): Uint8Array {
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let at = 0; at < raw.length; at += 1) bytes[at] = raw.charCodeAt(at);
  return bytes;
}

/** The fields of a frame that carry text or bytes. */
export function encoded(data: string | Uint8Array): { data: string; encoding?: "base64" } {
  return typeof data === "string" ? { data } : { data: toBase64(data), encoding: "base64" };
}
