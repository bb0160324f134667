//! The fixture plugin of the contract vectors; abi/testdata/README.md says what each tool does.

use std::{io::Write, sync::atomic::{AtomicU32, Ordering}};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolhost::{first, join_all, json, plugin, tool, Call, Connection, Failure, Level, Operation, ToolError, Value, WriteError};

type Nothing = Result<(), ToolError>;

#[derive(Deserialize, JsonSchema)]
struct ValueArgs { value: Value }

/// Returns its value.
#[tool]
fn echo(args: ValueArgs) -> Result<Value, ToolError> { Ok(args.value) }

/// Has no result.
#[tool]
fn nothing() -> Nothing { Ok(()) }

fn maybe(error: Option<String>) -> Nothing { error.map_or(Ok(()), |e| Err(ToolError::new(e))) }

#[derive(Deserialize, JsonSchema)]
struct PartsArgs { parts: Vec<String>, error: Option<String> }

/// Writes its result in parts.
#[tool]
fn parts(args: PartsArgs, call: &Call) -> Nothing {
    for p in args.parts { call.write(0, p.as_bytes())?; }
    maybe(args.error)
}

#[derive(Deserialize, JsonSchema)]
struct TextArgs { text: String }

/// Ends with a tool error.
#[tool]
fn fail(args: TextArgs) -> Nothing { Err(ToolError::new(args.text)) }

/// Panics.
#[tool(name = "panic")]
fn panics(args: TextArgs) -> Nothing { panic!("{}", args.text) }

#[derive(Deserialize, JsonSchema)]
struct ConnectArgs { provider: String, subject: Option<String>, setup_url: Option<String> }

/// Requires a connection.
#[tool]
fn connect(a: ConnectArgs) -> Nothing {
    Err(ToolError::Connection(Connection { provider: a.provider, subject: a.subject, setup_url: a.setup_url }))
}

#[derive(Deserialize, JsonSchema)]
struct One { to: String, text: String }
#[derive(Deserialize, JsonSchema)]
struct OutputArgs { writes: Vec<One> }

/// Writes live output.
#[tool]
fn output(args: OutputArgs, call: &Call) -> Nothing {
    for w in args.writes { call.write(if w.to == "stderr" { 4 } else { 3 }, w.text.as_bytes())?; }
    Ok(())
}

/// Writes live output through WASI.
#[tool(name = "print")]
fn prints(args: OutputArgs) -> Nothing {
    for w in args.writes {
        if w.to == "stderr" { eprint!("{}", w.text) } else { print!("{}", w.text) }
        std::io::stdout().flush()?;
    }
    Ok(())
}

#[derive(Serialize)]
struct Codes { codes: Vec<i32> }
fn code(r: Result<(), WriteError>) -> i32 { r.err().map_or(0, |e| e.code) }

#[derive(Deserialize, JsonSchema)]
struct Report { done: f64, total: f64, #[serde(default)] message: String }
#[derive(Deserialize, JsonSchema)]
struct ProgressArgs { steps: Vec<Report> }

/// Reports progress.
#[tool]
fn progress(args: ProgressArgs, call: &Call) -> Result<Codes, ToolError> {
    Ok(Codes { codes: args.steps.iter().map(|s| code(call.progress(s.done, Some(s.total), &s.message))).collect() })
}

#[derive(Deserialize, JsonSchema)]
struct ContentArgs { blocks: Vec<Value>, error: Option<String>, #[serde(default)] why: bool }

/// Writes content blocks.
#[tool]
fn content(args: ContentArgs, call: &Call) -> Result<Value, ToolError> {
    let (mut codes, mut why) = (vec![], vec![]);
    for b in &args.blocks {
        let c = code(call.content(b));
        codes.push(c);
        if c < 0 { why.push(call.reason()); }
    }
    maybe(args.error)?;
    Ok(if args.why { json!({"codes": codes, "why": why}) } else { json!({ "codes": codes }) })
}

#[derive(Deserialize, JsonSchema)]
struct Record { level: String, message: String }
#[derive(Deserialize, JsonSchema)]
struct LogArgs { records: Vec<Record> }

/// Writes log records.
#[tool]
fn log(args: LogArgs, call: &Call) -> Nothing {
    for r in args.records {
        let level = match &*r.level { "debug" => Level::Debug, "info" => Level::Info, "warn" => Level::Warn, _ => Level::Error };
        call.log(level, &r.message);
    }
    Ok(())
}

#[derive(Deserialize, JsonSchema)]
struct WriteArgs { stream: i32, text: String }

/// Writes to a stream by its number.
#[tool]
fn write(args: WriteArgs, call: &Call) -> Result<Codes, ToolError> {
    Ok(Codes { codes: vec![code(call.write(args.stream, args.text.as_bytes()))] })
}

/// Returns the facts of the call.
#[tool]
fn facts(call: &Call) -> Result<Value, ToolError> {
    let f = call.facts();
    Ok(json!({"tool": call.tool(), "session": f.session, "attempt": f.attempt, "locale": f.locale, "config": f.config}))
}

/// Tells whether there is a script.
#[tool]
fn script(call: &Call) -> Result<Value, ToolError> { Ok(json!({"absent": call.script().is_none()})) }

#[derive(Deserialize, JsonSchema)]
struct HostArgs { op: String, request: Value }
fn answer(r: Result<Value, Failure>) -> Value {
    match r { Ok(v) => json!({ "response": v }), Err(f) => json!({ "failure": f.code }) }
}

/// Uses a host capability.
#[tool]
fn host(args: HostArgs, call: &Call) -> Result<Value, ToolError> { Ok(answer(call.host(&args.op, &args.request))) }

#[derive(Deserialize, JsonSchema)]
struct ReportStep { status: Option<String>, unit: Option<String>, summary: Option<String>, #[serde(default)] done: f64, #[serde(default)] total: f64 }
#[derive(Deserialize, JsonSchema)]
struct ReportArgs { reports: Vec<ReportStep>, error: Option<String> }

/// Reports on itself.
#[tool]
fn report(args: ReportArgs, call: &Call) -> Nothing {
    for r in args.reports {
        let request = match (r.status, r.unit, r.summary) {
            (Some(s), _, _) => json!({ "status": s }),
            (_, Some(u), _) => json!({ "unit": u }),
            (_, _, Some(s)) => json!({ "summary": s }),
            _ => { call.progress(r.done, Some(r.total), "")?; continue }
        };
        call.host("report", &request)?;
    }
    maybe(args.error)
}

#[derive(Deserialize, JsonSchema)]
struct ReceiveArgs { count: u32 }

/// Receives messages.
#[tool(messages)]
fn receive(args: ReceiveArgs, call: &Call) -> Result<Vec<Value>, ToolError> {
    let (mut out, mut after) = (vec![], Value::Null);
    for _ in 0..args.count {
        let request = if after.is_null() { json!({"wait_ms": 0}) } else { json!({"after": after, "wait_ms": 0}) };
        let mut answer = call.host("messages.receive", &request)?;
        let Some(m) = answer["messages"].get_mut(0) else { out.push(Value::Null); continue };
        after = m["id"].take();
        out.push(m["message"].take());
    }
    Ok(out)
}

#[derive(Deserialize, JsonSchema)]
struct SessionStep { #[serde(rename = "do")] what: String, key: Option<String>, value: Option<Value>, version: Option<i64> }
#[derive(Deserialize, JsonSchema)]
struct SessionArgs { steps: Vec<SessionStep> }

/// Uses the values of the session.
#[tool]
fn session(args: SessionArgs, call: &Call) -> Result<Vec<Value>, ToolError> {
    let step = |s: SessionStep| -> Result<Value, Failure> {
        let (mut request, version) = (json!({}), s.version);
        if let Some(k) = s.key { request["key"] = k.into(); }
        if s.what == "set" { request["value"] = s.value.unwrap_or_default(); }
        if let Some(v) = version { request["version"] = v.into(); }
        let mut r = call.host(&format!("session.{}", s.what), &request)?;
        Ok(match &*s.what {
            "get" => json!({"version": r["version"].as_i64().unwrap_or(0), "value": r["value"].take()}),
            "set" if version.is_some() => r["version"].take(),
            "list" => r["values"].take(),
            _ => Value::Null,
        })
    };
    Ok(args.steps.into_iter().map(|s| answer(step(s))).collect())
}

#[derive(Deserialize, JsonSchema)]
struct StopArgs { finish: bool }

/// Reports progress until it is stopped.
#[tool]
fn stop(args: StopArgs, call: &Call) -> Result<&'static str, ToolError> {
    for i in 0..1 << 20 {
        let Err(stopped) = call.progress(i as f64, None, "") else { continue };
        if call.output("stopping\n").is_ok() { return Err(ToolError::new("output after the stop was not told of it")); }
        return if args.finish { Ok("finished") } else { Err(stopped.into()) };
    }
    Err(ToolError::new("never stopped"))
}

#[derive(Deserialize, JsonSchema)]
struct ExitArgs { code: i32 }

/// Exits.
#[tool]
fn exit(args: ExitArgs) -> Nothing { std::process::exit(args.code) }

static CALLS: AtomicU32 = AtomicU32::new(0);

/// Counts the calls of its instance.
#[tool]
fn state() -> Result<u32, ToolError> { Ok(CALLS.fetch_add(1, Ordering::Relaxed) + 1) }

#[derive(Deserialize, JsonSchema)]
struct WaitOp { op: String, request: Value, #[serde(default)] cancel: bool }
#[derive(Deserialize, JsonSchema)]
struct WaitArgs {
    rounds: Vec<Vec<WaitOp>>,
    #[serde(default)] quiet: bool,
    #[serde(default)] first: bool,
    error: Option<String>,
}

/// Waits for operations.
#[tool]
async fn wait(args: WaitArgs, call: &Call) -> Result<Vec<Vec<Value>>, ToolError> {
    let mut all = vec![];
    for round in &args.rounds {
        let started: Vec<Operation> = round.iter().map(|o| call.start(&o.op, &o.request)).collect();
        for (o, s) in round.iter().zip(&started) {
            if o.cancel { s.cancel(); }
        }
        let quiet = args.quiet;
        let ends = started.into_iter().enumerate().map(|(i, o)| async move {
            let end = answer(o.await);
            if !quiet { let _ = call.output(&format!("{i}\n")); } // a stop ends the operations too
            end
        });
        if args.first {
            let mut results = vec![Value::Null; round.len()];
            let (i, end) = first(ends).await;
            results[i] = end;
            all.push(results);
            return Ok(all);
        }
        all.push(join_all(ends).await);
    }
    maybe(args.error)?;
    Ok(all)
}

/// Waits for nothing.
#[tool]
async fn stuck() -> Nothing { std::future::pending().await }

plugin! {
    name: "vectors",
    description: "Does what the contract vectors ask for.",
    tools: [echo, nothing, parts, fail, panics, connect, output, prints, progress, content, log, write, facts, script,
        host, report, receive, session, stop, exit, state, wait, stuck],
}
