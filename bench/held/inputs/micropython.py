class Node:
    def __init__(self, key):
        self.key, self.left, self.right = key, None, None


def insert(root, key):
    if root is None:
        return Node(key)
    node = root
    while True:
        side = "left" if key < node.key else "right"
        child = getattr(node, side)
        if child is None:
            setattr(node, side, Node(key))
            return root
        node = child


def depth(node):
    return 0 if node is None else 1 + max(depth(node.left), depth(node.right))


def queens(n, row=0, columns=0, up=0, down=0):
    if row == n:
        return 1
    found = 0
    free = ~(columns | up | down) & ((1 << n) - 1)
    while free:
        bit = free & -free
        free ^= bit
        found += queens(n, row + 1, columns | bit, (up | bit) << 1, (down | bit) >> 1)
    return found


def caught(rounds):
    total = 0
    for i in range(rounds):
        try:
            if i % 3 == 0:
                raise ValueError(i)
            total += 1
        except ValueError as e:
            total += len(str(e))
    return total


root = None
key = 1
for _ in range(3000):
    key = (key * 1103515245 + 12345) % 2147483648
    root = insert(root, key)
words = {}
for i in range(4000):
    word = "word%d" % (i * i % 211)
    words[word] = words.get(word, 0) + 1
print(depth(root), queens(7), caught(4000), sorted(words.items())[:2])
