// Holds a lock of `ringfence serve`. Needs only Node.js.
const fs = require('node:fs')
const http = require('node:http')
const readline = require('node:readline')

// Calls `told` with each event of a lock. Destroy the request to release the lock.
function hold(socketPath, order, told, ended) {
  const request = http.request({ socketPath, path: '/v1/hold', method: 'POST' }, (answer) => {
    const lines = readline.createInterface({ input: answer })
    lines.on('line', (line) => told(JSON.parse(line), request))
    lines.on('error', () => {})
    answer.on('error', () => {})
    answer.on('close', ended)
  })
  request.on('error', ended)
  request.end(JSON.stringify(order))
}

const [socket, name, counter, rounds] = process.argv.slice(2)

function untilLost() {
  let why = 'the service has gone'
  const told = (event) => {
    if (event.event === 'held') console.log('held', event.fence)
    if (event.event === 'lost') why = event.why
  }
  hold(socket, { name, ttl: '2s' }, told, () => {
    console.log('lost:', why)
    process.exit(79)
  })
}

function round(left) {
  if (left === 0) return
  const told = (event, request) => {
    if (event.event !== 'held') return
    const [count, fence] = fs.readFileSync(counter, 'utf8').split(' ').map(Number)
    if (event.fence <= fence) throw new Error(`the fence ${event.fence} is not above ${fence}`)
    fs.writeFileSync(counter, `${count + 1} ${event.fence}`)
    request.destroy()
  }
  hold(socket, { name, ttl: '10s' }, told, () => round(left - 1))
}

if (rounds === '0') untilLost()
else round(Number(rounds))
