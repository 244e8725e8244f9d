// Writes batches to a database by classic-level: node writer.js DIR BATCHES. database/tests/classic_level.rs computes the same changes.
const { ClassicLevel } = require('classic-level')
const [dir, batches] = process.argv.slice(2)

async function main () {
  const db = new ClassicLevel(dir, { writeBufferSize: 64 << 10 })
  await db.open()
  for (let number = 1; number <= batches; number++) {
    const operations = [{ type: 'put', key: 'counter', value: String(number) }]
    let random = number
    for (let i = 0; i < 8; i++) {
      random = (Math.imul(random, 1103515245) + 12345) >>> 0
      const key = 'key' + ((random >>> 8) % 2000)
      if ((random >>> 28) < 4) operations.push({ type: 'del', key })
      else operations.push({ type: 'put', key, value: number + ':' + 'v'.repeat((random >>> 20) % 100) })
    }
    await db.batch(operations)
    if (number === 1) process.stdout.write('begun\n')
  }
  process.stdout.write('done\n')
  // Holds the database until its parent has looked at it.
  process.stdin.on('end', () => db.close()).resume()
}

main()
