// What a tool for Toolhost finds, besides what the web has: fetch, URL, URLSearchParams,
// Headers, Request, Response, AbortController, TextEncoder, TextDecoder, crypto, timers,
// structuredClone, atob, btoa, console and process.env.
declare module "toolhost" {
  /** JSON Schema, as models get it. */
  export type Schema = { [keyword: string]: unknown };
  type Name = "string" | "number" | "integer" | "boolean" | "array" | "object";
  /** Types by name; an optional property has a question mark: { text: "string", "top?": "integer" }. */
  export type Shape = { [property: string]: Name | Schema };
  /** A schema of zod, or of another library of Standard Schema with JSON Schema. */
  export interface Standard<T = unknown> {
    readonly "~standard": { readonly vendor: string; readonly version: number; readonly types?: { readonly input: unknown; readonly output: T } | undefined };
  }

  type Value<N> = N extends "string" ? string : N extends "number" | "integer" ? number : N extends "boolean" ? boolean
    : N extends "array" ? unknown[] : N extends "object" ? Record<string, unknown>
    : N extends { enum: readonly (infer E)[] } ? E : N extends { type: "array"; items: infer I } ? Value<I>[]
    : N extends { type: infer T } ? Value<T> : any;
  /** What a tool with this input is called with. */
  export type Args<S> = S extends Standard<infer T> ? T : S extends { type: "object" } ? any
    : { [K in keyof S as K extends `${string}?` ? never : K]: Value<S[K]> } & { [K in keyof S as K extends `${infer N}?` ? N : never]?: Value<S[K]> };

  /** What has to be granted before a tool is called, see docs/contract.md. */
  export interface Needs { [need: string]: unknown; /** What tools can work without, see Call.has. */ optional?: { [need: string]: unknown } }

  export interface Options<S> {
    /** What the tool does, for models. */
    description: string;
    input?: S;
    /** In place of the name of the export. */
    name?: string;
    title?: string;
    /** Hints, see docs/contract.md. */
    readonly?: boolean;
    idempotent?: boolean;
    destructive?: boolean;
    openWorld?: boolean;
    supportsBackground?: boolean;
    messages?: boolean;
    /** In addition to what the plugin needs. */
    needs?: Needs;
    limits?: { fuel?: number; memory_bytes?: number; timeout_seconds?: number; background_seconds?: number; output_bytes?: number };
    examples?: { args: unknown; result?: unknown; error?: string }[];
    narrate?: { [moment: string]: string | { [locale: string]: string } };
  }

  export interface Tool { readonly options: Options<any> }

  /** Declares a tool. A result that is undefined is none; anything else becomes JSON. */
  export function tool<const S extends Standard<any> | Shape | Schema>(options: Options<S>, run: (args: Args<S>, call: Call) => unknown): Tool;

  /** Besides its tools a module exports what it is: export const plugin: Plugin = { … }. */
  export interface Plugin {
    name: string;
    version?: string;
    description?: string;
    /** Of all tools. */
    needs?: Needs;
  }

  /** A failure that the tool reports: models get the message. */
  export class ToolError extends Error {}
  /** An operation of the host that failed. */
  export class HostError extends Error { code: "denied" | "unknown" | "invalid" | "failed" | "limit" | "canceled" | "conflict" | "lost" }
  /** A tool that was called and did not succeed. */
  export class ToolCallError extends Error { tool: string; kind: string; connection?: unknown; limit?: string }
  /** Ends the call: the user has to connect something first. */
  export class ConnectionRequired extends Error { constructor(provider: string, more?: { subject?: string; setup_url?: string }) }

  interface Store {
    get(key: string): Promise<{ value?: any; version?: number }>;
    set(key: string, value: unknown, options?: { version?: number; ttl_ms?: number }): Promise<{ version: number }>;
    delete(key: string, options?: { version?: number }): Promise<{ deleted: boolean }>;
    list(options?: { prefix?: string; after?: string }): Promise<{ values: { key: string; version: number; bytes: number }[]; more?: boolean }>;
  }

  export interface Call {
    readonly tool: string;
    readonly id: string;
    readonly session: string;
    readonly attempt: number;
    readonly locale: string;
    readonly config: { [name: string]: string };
    /** Units that the call may use. */
    readonly fuel: number;
    /** Milliseconds that the call may take. */
    readonly timeout: number;
    /** The call is being stopped: finish soon. */
    readonly stopping: boolean;

    /** Returns 1 if the call is being stopped. A total below 0 is unknown. */
    progress(done: number, total?: number, message?: string): number;
    /** Live output, as console.log writes it, but as it is. */
    output(text: string): number;
    /** A write to a stream of the contract. */
    write(stream: number, text: string): number;
    /** For the operator, never for models. */
    log: { debug(...values: unknown[]): void; info(...values: unknown[]): void; warn(...values: unknown[]): void; error(...values: unknown[]): void };
    /** Adds a block to the answer. */
    content(block: string | { type: string; [field: string]: unknown }): void;
    /** Adds an image, as bytes or in base64. */
    image(data: Uint8Array | ArrayBuffer | string, mimeType: string): void;

    /** Does an operation of docs/contract.md. */
    host(op: string, request?: object, options?: { signal?: AbortSignal }): Promise<any>;
    /** Without the grant of a clock it is denied. */
    sleep(ms: number): Promise<void>;
    report(report: { status?: string; unit?: string; summary?: string }): Promise<void>;
    ask(questions: { [key: string]: { message: string; schema: Schema } }): Promise<{ [key: string]: { action: "accept" | "decline" | "cancel"; content?: any } }>;
    kv: Store;
    session_values: Store;
    checkpoint: { save(value: unknown): Promise<void>; load(): Promise<any> };
    receive(options?: { after?: number; wait_ms?: number }): Promise<{ id: number; at: string; by?: string; message: any }[]>;
    /** Whether needs are granted to this call: await call.has({ kv: "write" }). */
    has(needs: Needs): Promise<boolean>;
    secretExists(name: string): Promise<boolean>;
    search(query?: string, limit?: number): Promise<{ tools: { name: string; declaration: string; description: string }[]; more: number }>;
    callTool(tool: string, args?: object, options?: { timeout?: number }): Promise<any>;
    /** Tools that were granted: await call.tools.NAME({ … }). */
    tools: { [name: string]: (args?: object, options?: { timeout?: number }) => Promise<any> };
  }
}

/** On the folders that were granted, by the paths that the plugin sees. Errors have a code: ENOENT, EEXIST, EPERM for a path that leads out, EROFS. */
declare module "node:fs/promises" {
  interface Stats { size: number; mtimeMs: number; mtime: Date; atimeMs: number; atime: Date; ctimeMs: number; ctime: Date; isFile(): boolean; isDirectory(): boolean; isSymbolicLink(): boolean }
  interface Dirent { name: string; parentPath: string; isFile(): boolean; isDirectory(): boolean; isSymbolicLink(): boolean }
  interface FileHandle {
    /** Reads on from where the last read ended, or from a position. 0 bytes are the end. */
    read<T extends ArrayBufferView>(buffer: T, offset?: number, length?: number, position?: number | null): Promise<{ bytesRead: number; buffer: T }>;
    write(data: string | ArrayBufferView): Promise<{ bytesWritten: number }>;
    close(): Promise<void>;
  }
  type Flags = "r" | "r+" | "w" | "wx" | "w+" | "a" | "ax";
  export function open(path: string, flags?: Flags): Promise<FileHandle>;
  export function readFile(path: string, options: "utf8" | "utf-8" | { encoding: "utf8" | "utf-8" }): Promise<string>;
  export function readFile(path: string): Promise<Uint8Array>;
  export function writeFile(path: string, data: string | ArrayBufferView | ArrayBuffer, options?: "utf8" | { encoding?: "utf8"; flag?: Flags }): Promise<void>;
  export function appendFile(path: string, data: string | ArrayBufferView): Promise<void>;
  export function readdir(path: string): Promise<string[]>;
  export function readdir(path: string, options: { withFileTypes: true }): Promise<Dirent[]>;
  export function stat(path: string): Promise<Stats>;
  export function lstat(path: string): Promise<Stats>;
  export function mkdir(path: string, options?: { recursive?: boolean }): Promise<void>;
  export function rm(path: string, options?: { recursive?: boolean; force?: boolean }): Promise<void>;
  export function rmdir(path: string): Promise<void>;
  export function unlink(path: string): Promise<void>;
  export function rename(from: string, to: string): Promise<void>;
}
