// toolhost:toolhost
var { tool, ToolError, HostError, ToolCallError, ConnectionRequired } = globalThis.toolhost;

// tool.js
var plugin = {
  name: "weather",
  version: "1.0.0",
  description: "Weather of open-meteo.com.",
  needs: { http: [{ url: "https://api.open-meteo.com/v1/forecast" }, { url: "https://geocoding-api.open-meteo.com/v1/search" }] }
};
var where = {
  place: { type: "string", description: "City, best with its region or country: Paris, Texas", minLength: 1, maxLength: 100 },
  "units?": { enum: ["metric", "imperial"], default: "metric" }
};
var noPlace = { args: { place: " , France" }, error: "expected the name of a city" };
var conditions = {
  0: "clear",
  1: "mostly clear",
  2: "partly cloudy",
  3: "overcast",
  45: "fog",
  48: "rime fog",
  51: "light drizzle",
  53: "drizzle",
  55: "dense drizzle",
  56: "light freezing drizzle",
  57: "freezing drizzle",
  61: "light rain",
  63: "rain",
  65: "heavy rain",
  66: "light freezing rain",
  67: "freezing rain",
  71: "light snow",
  73: "snow",
  75: "heavy snow",
  77: "snow grains",
  80: "light showers",
  81: "showers",
  82: "violent showers",
  85: "light snow showers",
  86: "heavy snow showers",
  95: "thunderstorm",
  96: "thunderstorm with hail",
  99: "thunderstorm with heavy hail"
};
var condition = (code) => conditions[code] ?? `weather code ${code}`;
async function get(url, query) {
  const response = await fetch(`${url}?${new URLSearchParams(query)}`), text = await response.text();
  let answer;
  try {
    answer = JSON.parse(text);
  } catch {
    throw new ToolError(`the weather service answers ${response.status} without JSON: try again later`);
  }
  if (!response.ok) throw new ToolError(`the weather service answers ${response.status}: ${String(answer?.reason ?? "try again later").slice(0, 200)}`);
  return answer;
}
var same = (a, b) => String(a ?? "").toLowerCase() === b;
async function find(place) {
  const [name, ...rest] = place.split(",").map((part) => part.trim());
  if (name === "") throw new ToolError("expected the name of a city");
  const { results = [] } = await get("https://geocoding-api.open-meteo.com/v1/search", { name, count: rest.length ? 50 : 1, language: "en", format: "json" });
  const found = results.find((r) => rest.every((part) => [r.country, r.country_code, r.admin1, r.admin2].some((of) => same(of, part.toLowerCase()))));
  if (found) return found;
  const others = results.slice(0, 5).map(label).join("; ");
  throw new ToolError(`no place ${JSON.stringify(place)}` + (others ? `: there is ${others}` : ": try another spelling, or a larger city nearby"));
}
var label = (r) => [r.name, r.admin1, r.country].filter(Boolean).join(", ");
async function forecast({ place, units }, query) {
  const found = await find(place);
  const imperial = units === "imperial" ? { temperature_unit: "fahrenheit", wind_speed_unit: "mph", precipitation_unit: "inch" } : {};
  const answer = await get("https://api.open-meteo.com/v1/forecast", { latitude: found.latitude, longitude: found.longitude, timezone: "auto", ...imperial, ...query });
  return { place: label(found), answer };
}
var get_weather = tool({
  description: "Tells the current weather.",
  input: where,
  readonly: true,
  examples: [noPlace]
}, async (args) => {
  const { place, answer } = await forecast(args, { current: "temperature_2m,apparent_temperature,relative_humidity_2m,precipitation,weather_code,wind_speed_10m" });
  const now = answer.current, unit = answer.current_units;
  if (!now || !unit) throw new ToolError("the weather service has no current weather for this place");
  const with_unit = (name) => `${now[name]} ${unit[name]}`;
  return {
    place,
    time: `${now.time} (${answer.timezone})`,
    condition: condition(now.weather_code),
    temperature: with_unit("temperature_2m"),
    feels_like: with_unit("apparent_temperature"),
    humidity: with_unit("relative_humidity_2m"),
    precipitation: with_unit("precipitation"),
    wind: with_unit("wind_speed_10m")
  };
});
var get_forecast = tool({
  description: "Tells the weather of the next days.",
  input: { ...where, "days?": { type: "integer", minimum: 1, maximum: 16, default: 5 } },
  readonly: true,
  examples: [noPlace]
}, async (args) => {
  const { place, answer } = await forecast(args, {
    forecast_days: args.days,
    daily: "weather_code,temperature_2m_max,temperature_2m_min,precipitation_sum,precipitation_probability_max,wind_speed_10m_max"
  });
  const { daily, daily_units: unit } = answer;
  if (!daily?.time || !unit) throw new ToolError("the weather service has no forecast for this place");
  return {
    place,
    units: { temperature: unit.temperature_2m_max, precipitation: unit.precipitation_sum, wind: unit.wind_speed_10m_max },
    days: daily.time.slice(0, 16).map((date, i) => ({
      date,
      condition: condition(daily.weather_code?.[i]),
      min: daily.temperature_2m_min?.[i],
      max: daily.temperature_2m_max?.[i],
      precipitation: daily.precipitation_sum?.[i],
      precipitation_percent: daily.precipitation_probability_max?.[i],
      wind: daily.wind_speed_10m_max?.[i]
    }))
  };
});
export {
  get_forecast,
  get_weather,
  plugin
};
//# lines={"files":["toolhost:toolhost","tool.js"],"lines":[null,[0,1],null,null,[1,5],[1,5],[1,6],[1,6],[1,6],[1,8],[1,10],[1,10],[1,11],[1,13],[1,14],[1,17],[1,17],[1,18],[1,18],[1,18],[1,18],[1,18],[1,18],[1,18],[1,18],[1,18],[1,19],[1,19],[1,19],[1,19],[1,19],[1,19],[1,19],[1,20],[1,20],[1,20],[1,20],[1,20],[1,20],[1,20],[1,21],[1,21],[1,21],[1,21],[1,22],[1,23],[1,25],[1,26],[1,27],[1,28],[1,29],[1,29],[1,31],[1,31],[1,33],[1,34],[1,35],[1,37],[1,40],[1,41],[1,42],[1,43],[1,44],[1,45],[1,46],[1,47],[1,48],[1,50],[1,52],[1,53],[1,54],[1,55],[1,56],[1,57],[1,59],[1,59],[1,60],[1,61],[1,61],[1,62],[1,63],[1,64],[1,65],[1,66],[1,67],[1,67],[1,68],[1,68],[1,68],[1,69],[1,69],[1,69],[1,70],[1,70],[1,72],[1,74],[1,74],[1,75],[1,76],[1,76],[1,77],[1,78],[1,78],[1,79],[1,79],[1,81],[1,82],[1,83],[1,83],[1,84],[1,84],[1,85],[1,86],[1,86],[1,86],[1,86],[1,87],[1,87],[1,87],[1,88],[1,90],null]}