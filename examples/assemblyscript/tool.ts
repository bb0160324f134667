// Two tools, with nothing but the contract of docs/contract.md.

import { JSON } from "json-as";

@external("toolhost_v1", "read")
declare function read(field: i32, ptr: usize, cap: i32): i32;
@external("toolhost_v1", "write")
declare function write(stream: i32, ptr: usize, len: i32): i32;
@external("toolhost_v1", "call_start")
declare function call_start(op: usize, opLen: i32, ptr: usize, len: i32): i32;

enum Field { Args, Tool, Context, Response }
enum Stream { Result, Error, LogError = 11 }
const waiting = 4;

function field(number: Field): string {
  const text = new ArrayBuffer(max(0, read(number, 0, 0)));
  read(number, changetype<usize>(text), text.byteLength);
  return String.UTF8.decode(text);
}

function send(stream: Stream, text: string): void {
  const bytes = String.UTF8.encode(text);
  write(stream, changetype<usize>(bytes), bytes.byteLength);
}

/** An error whose text is for the model. */
function fail(text: string): i32 {
  send(Stream.Error, text);
  return 1;
}

@json
class Text {
  text: string = "";
}

@json
class Counts {
  words: i32 = 0;
  longest: string = "";
}

function count(): i32 {
  const words = JSON.parse<Text>(field(Field.Args)).text.split(" ").filter((word) => word != "");
  if (words.length == 0) return fail("the text has no words");

  const counts = new Counts();
  counts.words = words.length;
  for (let i = 0; i < words.length; i++) {
    if (words[i].length > counts.longest.length) counts.longest = words[i];
  }
  send(Stream.Result, JSON.stringify(counts));
  return 0;
}

@json
class Reminder {
  text: string = "";
  ms: i32 = 0;
}

/** What a call needs after its wait. It is memory, so the host can store it and continue elsewhere. */
let reminder = new Reminder();

function remind(): i32 {
  reminder = JSON.parse<Reminder>(field(Field.Args));
  const op = String.UTF8.encode("sleep");
  const request = String.UTF8.encode(`{"ms":${reminder.ms}}`);
  const id = call_start(changetype<usize>(op), op.byteLength, changetype<usize>(request), request.byteLength);
  return id < 0 ? refused() : waiting;
}

@json
class Failure {
  code: string = "";
  message: string = "";
}

/** The host has refused an operation, or it has failed. */
function refused(): i32 {
  return fail(JSON.parse<Failure>(field(Field.Response)).message);
}

export function toolhost_invoke(): i32 {
  const tool = field(Field.Tool);
  if (tool == "count") return count();
  if (tool == "remind") return remind();
  return fail("no such tool");
}

/** The sleep has ended: there was no other operation. */
export function toolhost_resume(id: i32, code: i32): i32 {
  if (code < 0) return refused();
  send(Stream.Result, JSON.stringify(reminder.text));
  return 0;
}

/** What throws is broken: the text is for the operator. */
export function abort(message: string | null, file: string | null, line: u32, column: u32): void {
  send(Stream.LogError, `${message ? message : "aborted"} (${file ? file : "?"}:${line}:${column})`);
  unreachable();
}
