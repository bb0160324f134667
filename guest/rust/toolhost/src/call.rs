use std::{collections::BTreeMap, fmt, time::Duration};

use serde::{de::DeserializeOwned, Deserialize, Serialize};
use serde_json::{json, Value};

use crate::{sys, wait::Operation, ToolError};

/// A host that stops the call (code 1), or that refused what was written (below 0).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteError {
    /// What the function of the contract returned.
    pub code: i32,
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.code == 1 { f.write_str("canceled") } else { write!(f, "the host refused a write with code {}", self.code) }
    }
}
impl std::error::Error for WriteError {}

fn written(code: i32) -> Result<(), WriteError> {
    if code == 0 { Ok(()) } else { Err(WriteError { code }) }
}

/// An operation that failed: `denied`, `unknown`, `invalid`, `failed`, `limit`, `canceled`, `conflict` or `lost`.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Failure {
    pub code: String,
    pub message: String,
}

impl Failure {
    pub(crate) fn read() -> Self {
        sys::field(3).and_then(|b| serde_json::from_slice(&b).ok()).unwrap_or_default()
    }

    pub(crate) fn check(code: i32) -> Result<Value, Failure> {
        if code < 0 {
            return Err(Failure::read());
        }
        let response = sys::field(3).unwrap_or_default();
        serde_json::from_slice(&response).map_err(|e| Failure { code: "failed".into(), message: e.to_string() })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { write!(f, "{}: {}", self.code, self.message) }
}
impl std::error::Error for Failure {}

/// The facts of a call.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Facts {
    pub call_id: String,
    pub session: String,
    /// 1 in the first attempt of a background run.
    pub attempt: u32,
    pub timeout_ms: u64,
    pub fuel: i64,
    pub locale: String,
    pub config: BTreeMap<String, String>,
}

/// How important a log record is.
#[derive(Debug, Clone, Copy)]
#[repr(i32)]
pub enum Level { Debug = 8, Info, Warn, Error }

/// A question to the user; `schema` is the JSON Schema of the answer.
#[derive(Debug, Serialize)]
pub struct Question {
    pub message: String,
    pub schema: Value,
}

/// What the user answered: `action` is `accept`, `decline` or `cancel`.
#[derive(Debug, Deserialize)]
pub struct Answer {
    pub action: String,
    #[serde(default)]
    pub content: Value,
}

/// An HTTP request. The zero value of each field but `url` is left to the host.
#[derive(Debug, Default, Serialize)]
pub struct Request {
    pub url: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redirects: Option<u32>,
}

/// An HTTP response. A body that is not UTF-8 is in `body_base64`.
#[derive(Debug, Deserialize)]
pub struct Response {
    pub status: u16,
    pub url: String,
    #[serde(default)]
    pub headers: BTreeMap<String, Vec<String>>,
    #[serde(default)]
    pub body: String,
    pub body_base64: Option<String>,
}

/// The call that a tool runs in.
pub struct Call(pub(crate) ());

impl Call {
    /// The name of the tool.
    pub fn tool(&self) -> String { String::from_utf8_lossy(&sys::field(1).unwrap_or_default()).into_owned() }

    pub fn facts(&self) -> Facts { sys::field(2).and_then(|b| serde_json::from_slice(&b).ok()).unwrap_or_default() }

    /// The script of a scripted plugin.
    pub fn script(&self) -> Option<Vec<u8>> { sys::field(4) }

    /// Writes to a stream of the contract.
    pub fn write(&self, stream: i32, data: &[u8]) -> Result<(), WriteError> {
        written(unsafe { sys::write(stream, data.as_ptr(), data.len()) })
    }

    /// Writes live output.
    pub fn output(&self, text: &str) -> Result<(), WriteError> { self.write(3, text.as_bytes()) }

    /// Writes a log record for the operator; the model never sees it.
    pub fn log(&self, level: Level, message: &str) {
        let _ = self.write(level as i32, message.as_bytes()); // a stop is seen elsewhere
    }

    /// Reports progress; without a total it is unknown. Fails with code 1 when the call is being stopped.
    pub fn progress(&self, done: f64, total: Option<f64>, message: &str) -> Result<(), WriteError> {
        written(unsafe { sys::progress(done, total.unwrap_or(-1.0), message.as_ptr(), message.len()) })
    }

    /// Appends a content block to the result.
    pub fn content(&self, block: &Value) -> Result<(), WriteError> { self.write(5, block.to_string().as_bytes()) }

    /// Returns why the last content block was refused.
    pub fn reason(&self) -> String { Failure::read().message }

    /// Appends an image to the result.
    pub fn image(&self, data: &[u8], media_type: &str) -> Result<(), WriteError> {
        self.content(&json!({"type": "image", "data": base64(data), "mimeType": media_type}))
    }

    /// Uses a capability of the host, and waits for it inside of the plugin.
    pub fn host(&self, op: &str, request: &Value) -> Result<Value, Failure> {
        let r = request.to_string();
        Failure::check(unsafe { sys::call(op.as_ptr(), op.len(), r.as_ptr(), r.len()) })
    }

    /// Starts an operation of the host. It runs at once; await it for its response.
    pub fn start(&self, op: &str, request: &Value) -> Operation { Operation::start(op, request) }

    /// Sleeps. The plugin needs the clock.
    pub async fn sleep(&self, d: Duration) -> Result<(), Failure> {
        self.start("sleep", &json!({"ms": d.as_millis() as u64})).await.map(drop)
    }

    /// Calls another tool, and returns its value. Anything but a success is an error.
    pub async fn call_tool<T: DeserializeOwned>(&self, tool: &str, args: &impl Serialize) -> Result<T, ToolError> {
        let mut answer = self.start("tool.call", &json!({"tool": tool, "args": args})).await?;
        match answer["kind"].as_str() {
            Some("success") => Ok(serde_json::from_value(answer["value"].take())?),
            Some("connection_required") => Err(ToolError::Connection(serde_json::from_value(answer["connection"].take())?)),
            _ => Err(ToolError::new(answer["error"].as_str().unwrap_or("the tool failed"))),
        }
    }

    /// Asks the user up to 8 questions at once, and returns the answers by the same keys.
    pub async fn ask(&self, questions: &BTreeMap<String, Question>) -> Result<BTreeMap<String, Answer>, ToolError> {
        let mut answer = self.start("ask", &json!({ "questions": questions })).await?;
        Ok(serde_json::from_value(answer["answers"].take())?)
    }

    /// Makes an HTTP request that a grant admits.
    pub async fn http(&self, request: &Request) -> Result<Response, ToolError> {
        Ok(serde_json::from_value(self.start("http", &json!(request)).await?)?)
    }

    /// Returns a value of the plugin's store, None if it has none.
    pub fn kv_get<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, ToolError> {
        match self.host("kv.get", &json!({ "key": key }))?.get_mut("value") {
            Some(v) => Ok(Some(serde_json::from_value(v.take())?)),
            None => Ok(None),
        }
    }

    /// Stores a value durably in the plugin's store.
    pub fn kv_set(&self, key: &str, value: &impl Serialize) -> Result<(), Failure> {
        self.host("kv.set", &json!({"key": key, "value": value})).map(drop)
    }
}

fn base64(data: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(data.len().div_ceil(3) * 4);
    for part in data.chunks(3) {
        let n = part.iter().fold(0u32, |n, b| n << 8 | *b as u32) << (8 * (3 - part.len()));
        for i in 0..4 {
            out.push(if i <= part.len() { DIGITS[(n >> (18 - 6 * i)) as usize & 63] as char } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #[test]
    fn base64_pads() {
        for (data, want) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")] {
            assert_eq!(super::base64(data.as_bytes()), want);
        }
    }
}
