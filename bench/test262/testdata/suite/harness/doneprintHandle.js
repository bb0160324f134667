function $DONE(error) { print(error ? 'Test262:AsyncTestFailure:' + error.constructor.name + ': ' + error.message : 'Test262:AsyncTestComplete'); }
