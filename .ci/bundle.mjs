// Starts the server of an unpacked MCP bundle as its manifest says, and calls a tool:
// bundle.mjs FOLDER
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { createInterface } from 'node:readline'

const folder = process.argv[2]
const manifest = JSON.parse(readFileSync(`${folder}/manifest.json`))
const { command, args } = manifest.server.mcp_config
const here = text => text.replaceAll('${__dirname}', folder)
assert.ok(manifest.compatibility.platforms.includes(process.platform))
assert.ok(manifest.tools.some(t => t.name === 'wordcount'))

const server = spawn(here(command), args.map(here), { stdio: ['pipe', 'pipe', 'inherit'] })
const answers = createInterface({ input: server.stdout })[Symbol.asyncIterator]()
async function call(id, method, params) {
	server.stdin.write(JSON.stringify({ jsonrpc: '2.0', id, method, params }) + '\n')
	for (;;) {
		const { value, done } = await answers.next()
		assert.ok(!done, 'the server ended')
		const message = JSON.parse(value)
		if (message.id === id) return message.result
	}
}

await call(1, 'initialize', { protocolVersion: '2025-06-18', capabilities: {}, clientInfo: { name: 'toolhost-ci', version: '1' } })
server.stdin.write(JSON.stringify({ jsonrpc: '2.0', method: 'notifications/initialized' }) + '\n')
const result = await call(2, 'tools/call', { name: 'wordcount', arguments: { text: 'to be or not to be' } })
assert.equal(result.structuredContent.words, 6)
server.stdin.end()
console.log('mcpb: one tool called')
