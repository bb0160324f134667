//! Tools of AI agents in Rust, as sandboxed WebAssembly plugins for Toolhost.
//!
//! A tool is a function with the attribute [`tool`]; [`plugin!`] makes a plugin of tools. Tools that
//! wait are `async`: they wait outside of the plugin, and survive a crash of the host at a wait.

mod call;
mod sys;
mod wait;

pub use call::{Answer, Call, Facts, Failure, Level, Question, Request, Response, WriteError};
pub use serde_json::{self, json, Value};
pub use toolhost_macros::tool;
pub use wait::{first, join_all, Operation};

use std::any::{Any, TypeId};

use schemars::JsonSchema;
use serde::{de::DeserializeOwned, Deserialize, Serialize};

/// The arguments of a tool without arguments.
#[derive(Deserialize, JsonSchema)]
pub struct NoArgs {}

/// An account that the user has to connect first.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Connection {
    pub provider: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setup_url: Option<String>,
}

/// How a tool fails. Any standard error becomes one by `?`, with its text for the model.
#[derive(Debug)]
pub enum ToolError {
    Text(String),
    Connection(Connection),
}

impl ToolError {
    pub fn new(text: impl Into<String>) -> Self { ToolError::Text(text.into()) }
}

impl<E: std::error::Error> From<E> for ToolError {
    fn from(e: E) -> Self { ToolError::Text(e.to_string()) }
}

#[doc(hidden)]
pub type Outcome = Result<Vec<u8>, ToolError>;

#[doc(hidden)]
pub enum Step {
    Done(Outcome),
    Wait(wait::Task),
}

#[doc(hidden)]
pub fn outcome<T: Serialize + Any>(result: Result<T, ToolError>) -> Outcome {
    let value = result?;
    if TypeId::of::<T>() == TypeId::of::<()>() {
        return Ok(Vec::new()); // no result, which is not null
    }
    Ok(serde_json::to_vec(&value)?)
}

#[doc(hidden)]
pub trait ToolDef {
    const NAME: &'static str;
    const ABOUT: &'static str;
    const HINTS: &'static [(&'static str, bool)];
    const TIMEOUT_SECONDS: Option<u32>;
    const NEEDS: &'static str;
    const EXAMPLES: &'static str;
    type Args: DeserializeOwned + JsonSchema;
    fn run(args: Self::Args, call: &'static Call) -> Step;
}

#[doc(hidden)]
pub struct Tool {
    name: &'static str,
    describe: fn() -> Value,
    run: fn(&[u8], &'static Call) -> Step,
}

#[doc(hidden)]
pub const fn tool_of<T: ToolDef>() -> Tool {
    Tool { name: T::NAME, describe: describe_tool::<T>, run: run_tool::<T> }
}

fn describe_tool<T: ToolDef>() -> Value {
    let mut schema = schemars::SchemaGenerator::default().into_root_schema_for::<T::Args>().to_value();
    if let Some(o) = schema.as_object_mut() {
        o.remove("$schema");
        o.remove("title");
        o.entry("properties").or_insert(json!({}));
    }

    let mut t = json!({"name": T::NAME, "description": T::ABOUT, "input_schema": schema});
    if !T::HINTS.is_empty() {
        t["hints"] = T::HINTS.iter().map(|(k, v)| (k.to_string(), json!(v))).collect();
    }
    if let Some(s) = T::TIMEOUT_SECONDS {
        t["limits"] = json!({ "timeout_seconds": s });
    }
    // What is not JSON fails when the plugin is built, and says why.
    for (field, text) in [("needs", T::NEEDS), ("examples", T::EXAMPLES)] {
        if text != "{}" {
            t[field] = serde_json::from_str(text).unwrap_or_else(|e| json!(format!("{field} must be JSON: {e}")));
        }
    }
    t
}

fn run_tool<T: ToolDef>(args: &[u8], call: &'static Call) -> Step {
    match serde_json::from_slice(args) {
        Ok(a) => T::run(a, call),
        Err(e) => Step::Done(Err(ToolError::new(format!("invalid arguments: {e}")))),
    }
}

static CALL: Call = Call(());

#[doc(hidden)]
pub fn describe(name: &str, version: &str, description: &str, needs: Option<Value>, tools: &[Tool]) -> i32 {
    let mut m = json!({"abi": "toolhost_v1", "name": name, "version": version, "description": description});
    m["tools"] = tools.iter().map(|t| (t.describe)()).collect();
    if let Some(n) = needs {
        m["needs"] = n;
    }
    i32::from(CALL.write(2, m.to_string().as_bytes()).is_err())
}

#[doc(hidden)]
pub fn invoke(tools: &[Tool]) -> i32 {
    std::panic::set_hook(Box::new(|p| CALL.log(Level::Error, &p.to_string())));
    let name = sys::field(1).unwrap_or_default();
    let Some(t) = tools.iter().find(|t| t.name.as_bytes() == name) else {
        return end(Some(Err(ToolError::new("no such tool"))));
    };
    match (t.run)(&sys::field(0).unwrap_or_default(), &CALL) {
        Step::Done(o) => end(Some(o)),
        Step::Wait(task) => end(wait::poll(task)),
    }
}

#[doc(hidden)]
pub fn resume(id: i32, code: i32) -> i32 { end(wait::resume(id, code)) }

/// Writes how the tool has ended; None says that it waits.
fn end(o: Option<Outcome>) -> i32 {
    let (code, stream, data) = match o {
        None => return 4,
        Some(Ok(v)) => (0, 0, v),
        Some(Err(ToolError::Text(s))) => (1, 1, s.into_bytes()),
        Some(Err(ToolError::Connection(c))) => (3, 1, json!(c).to_string().into_bytes()),
    };
    let _ = CALL.write(stream, &data); // the host knows what it refused
    code
}

/// Makes a plugin: `plugin! { name: "words", description: "Counts words.", tools: [count] }`.
///
/// `needs: {"clock": true}` before `tools` says what has to be granted. The version is the crate's.
#[macro_export]
macro_rules! plugin {
    (name: $name:expr, description: $about:expr, $(needs: $needs:tt,)? tools: [$($tool:ident),* $(,)?] $(,)?) => {
        const TOOLHOST_TOOLS: &[$crate::Tool] = &[$($crate::tool_of::<$tool>()),*];

        #[no_mangle]
        pub extern "C" fn toolhost_describe() -> i32 {
            let needs: &[$crate::Value] = &[$($crate::json!($needs))?];
            $crate::describe($name, env!("CARGO_PKG_VERSION"), $about, needs.first().cloned(), TOOLHOST_TOOLS)
        }

        #[no_mangle]
        pub extern "C" fn toolhost_invoke() -> i32 { $crate::invoke(TOOLHOST_TOOLS) }

        #[no_mangle]
        pub extern "C" fn toolhost_resume(id: i32, code: i32) -> i32 { $crate::resume(id, code) }
    };
}
