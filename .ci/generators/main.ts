// Calls a server with the client of openapi-generator for typescript-fetch.
import { CallsApi, Code, Configuration, Kind, ProblemFromJSON, ResponseError, RunsApi, Status, ToolsApi } from "./typescript/index";

declare const process: { env: Record<string, string>; exitCode: number };

function expect(what: string, holds: boolean, value: unknown) {
  if (!holds) throw new Error(`${what}: ${JSON.stringify(value)}`);
}

async function call(configuration: Configuration) {
  const calls = new CallsApi(configuration), runs = new RunsApi(configuration);

  const { tools } = await new ToolsApi(configuration).listTools();
  expect("tools", tools.length > 0, tools);
  const result = await calls.callTool({ call: { tool: "wordcount", args: { text: "one two" } } });
  expect("call", result.kind === Kind.KindSuccess && result.value.words === 2, result);

  const run = await runs.spawnRun({ spawn: { tool: "primes", args: { limit: 10 } } });
  expect("spawn", !run.dryRun, run);
  const checked = await runs.getRun({ run: run.taskId, wait: "1m" });
  expect("check", checked.status === Status.Succeeded, checked);
  const planned = await runs.spawnRun({ spawn: { tool: "primes", args: { limit: 10 } }, toolhostDryRun: "true" });
  expect("dry run", planned.dryRun, planned);

  try {
    expect("missing", false, await calls.callTool({ call: { tool: "missing" } }));
  } catch (error) {
    if (!(error instanceof ResponseError)) throw error;
    const problem = ProblemFromJSON(await error.response.json());
    expect("missing", problem.code === Code.CodeNotFound, problem);
  }
}

call(new Configuration({ basePath: process.env.URL, accessToken: process.env.TOKEN })).catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
