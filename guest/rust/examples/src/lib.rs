//! Eight tools: arguments, result, error, progress and output, host call, image, a wait, a message.

use std::{collections::BTreeMap, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolhost::{join_all, plugin, serde_json::json, tool, Call, ToolError};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Greeting {
    /// Whom to greet
    name: String,
    /// How many times
    #[serde(default = "once")]
    times: usize,
}
fn once() -> usize { 1 }

/// Greets somebody.
#[tool(readonly, idempotent, open_world = false, examples = r#"[{"args": {"name": "Ada", "times": 2}, "result": "Hello, Ada! Hello, Ada!"}]"#)]
fn greet(args: Greeting) -> Result<String, ToolError> {
    Ok(vec![format!("Hello, {}!", args.name); args.times].join(" "))
}

#[derive(Deserialize, JsonSchema)]
struct Text {
    text: String,
}

#[derive(Serialize)]
struct Counts {
    words: usize,
    longest: String,
}

/// Counts the words of a text.
#[tool(readonly, idempotent, open_world = false)]
fn count(args: Text) -> Result<Counts, ToolError> {
    let words: Vec<_> = args.text.split_whitespace().collect();
    let longest = words.iter().max_by_key(|w| w.chars().count()).unwrap_or(&"").to_string();
    Ok(Counts { words: words.len(), longest })
}

/// Adds the numbers of a text.
#[tool(readonly, idempotent, open_world = false, examples = r#"[{"args": {"text": "1 2.5"}, "result": 3.5}, {"args": {"text": "1 x"}, "error": "invalid float literal"}]"#)]
fn sum(args: Text) -> Result<f64, ToolError> {
    let mut sum = 0.0;
    for word in args.text.split_whitespace() {
        sum += word.parse::<f64>()?; // "invalid float literal" for the model
    }
    Ok(sum)
}

#[derive(Deserialize, JsonSchema)]
struct Steps {
    n: u32,
}

/// Works in steps, and reports each.
#[tool(readonly, open_world = false, examples = r#"[{"args": {"n": 2}, "result": 2}]"#)]
fn work(args: Steps, call: &Call) -> Result<u32, ToolError> {
    for i in 1..=args.n {
        call.progress(i.into(), Some(args.n.into()), "working")?; // an error when the call is stopped
        call.output(&format!("step {i}\n"))?;
    }
    Ok(args.n)
}

/// Counts its calls in the key-value store.
#[tool(examples = r#"[{"args": {}, "result": 1}]"#)]
fn visits(call: &Call) -> Result<u64, ToolError> {
    let n = call.kv_get("visits")?.unwrap_or(0) + 1;
    call.kv_set("visits", &n)?;
    Ok(n)
}

/// Draws a black square.
#[tool(readonly, idempotent, open_world = false)]
fn square(call: &Call) -> Result<(), ToolError> {
    // A bitmap of one pixel: its header, and a pixel with its padding.
    let mut bmp = b"BM\x3a\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0\x01\0\0\0\x01\0\0\0\x01\0\x18\0".to_vec();
    bmp.resize(58, 0);
    Ok(call.image(&bmp, "image/bmp")?)
}

/// Sleeps several times at once, outside of the plugin.
#[tool(readonly, supports_background, examples = r#"[{"args": {"a": 3, "b": 2}, "result": 2}]"#)]
async fn pause(args: BTreeMap<String, u64>, call: &Call) -> Result<usize, ToolError> {
    let sleeps = args.values().map(|ms| call.sleep(Duration::from_millis(*ms)));
    let ends: Result<Vec<_>, _> = join_all(sleeps).await.into_iter().collect();
    Ok(ends?.len())
}

#[derive(Deserialize, JsonSchema)]
struct Address {
    to: String,
}

#[derive(Serialize)]
struct Letter {
    to: String,
    text: String,
    stamps: u64,
}

/// Sends the letter whose text is a message.
#[tool(messages, supports_background)]
async fn letter(args: Address, call: &Call) -> Result<Letter, ToolError> {
    let stamps: u64 = call.kv_get("stamps")?.unwrap_or(0) + 1;
    call.kv_set("stamps", &stamps)?;
    call.output(&format!("stamped {stamps}\n"))?;

    let received = call.start("messages.receive", &json!({"wait_ms": 600_000})).await?; // a crash of the host here loses nothing
    let text = received["messages"][0]["message"].as_str().unwrap_or_default().to_string();
    call.output(&format!("sent to {}\n", args.to))?;
    Ok(Letter { to: args.to, text, stamps: call.kv_get("stamps")?.unwrap_or(0) })
}

plugin! {
    name: "examples",
    description: "Shows what a tool can do.",
    needs: {"clock": true, "kv": "write"},
    tools: [greet, count, sum, work, visits, square, pause, letter],
}
