raise __import__("unittest").SkipTest("no module")
