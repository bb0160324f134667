import java.util.Map;
import org.openapitools.client.*;
import org.openapitools.client.api.*;
import org.openapitools.client.model.*;

/** Calls a server with the client of openapi-generator for Java. */
class Main {
    static void expect(String what, boolean holds, Object value) {
        if (!holds) throw new AssertionError(what + ": " + value);
    }

    public static void main(String[] args) throws Exception {
        ApiClient client = new ApiClient();
        client.updateBaseUri(System.getenv("URL"));
        client.setRequestInterceptor(r -> r.header("Authorization", "Bearer " + System.getenv("TOKEN")));
        CallsApi calls = new CallsApi(client);
        RunsApi runs = new RunsApi(client);

        Tools tools = new ToolsApi(client).listTools(null, null);
        expect("tools", !tools.getTools().isEmpty(), tools);
        Result result = calls.callTool(new Call().tool("wordcount").args(Map.of("text", "one two")), null, null, null);
        expect("call", result.getKind() == Kind.KindSuccess && ((Map<?, ?>) result.getValue()).get("words").equals(2), result);

        RunOrPlan run = runs.spawnRun(new Spawn().tool("primes").args(Map.of("limit", 10)), null, null, null);
        Run checked = runs.getRun(run.getRun().getTaskId(), null, "1m", null, null, null);
        expect("check", checked.getStatus() == Status.SUCCEEDED, checked);
        RunOrPlan planned = runs.spawnRun(new Spawn().tool("primes").args(Map.of("limit", 10)), null, null, "true");
        expect("dry run", planned.getPlannedRun().getDryRun() == PlannedRun.DryRunEnum.TRUE, planned);

        try {
            expect("missing", false, calls.callTool(new Call().tool("missing"), null, null, null));
        } catch (ApiException e) {
            Problem problem = ApiClient.createDefaultObjectMapper().readValue(e.getResponseBody(), Problem.class);
            expect("missing", problem.getCode() == Code.CodeNotFound, problem);
        }
    }
}
